#include "kernels/cuda/cuda_environment.h"

#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace train_gpt {
namespace {

// Channels (8), collectives (3), copies (2), compute, and room for what libraries make.
constexpr long kFewestConnections = 16;

[[noreturn]] void refuse(const std::string& found, const std::string& remedy) {
  throw std::invalid_argument(
      found +
      ": kernels of a GPU then run one after the other, and one that waits for another rank's message keeps back "
      "those that send it what it waits for. " +
      remedy);
}

bool names_a_serialising_tool(std::string_view paths) {
  for (const std::string_view tool : {"nsight-compute", "NsightCompute", "sanitizer-collection"}) {
    if (paths.find(tool) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

void prepare_cuda_environment() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
}

void require_concurrent_kernels() {
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking != nullptr && std::atol(blocking) != 0) {
    refuse(std::string("CUDA_LAUNCH_BLOCKING=") + blocking, "Unset it, or start one rank");
  }
  const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (connections != nullptr && std::atol(connections) < kFewestConnections) {
    refuse(std::string("CUDA_DEVICE_MAX_CONNECTIONS=") + connections,
           "Unset it, or give at least " + std::to_string(kFewestConnections));
  }
  const std::string remedy = "Use nsys, which lets them overlap, or profile one rank";
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (text.starts_with("NV_NSIGHT_INJECTION")) {  // Nsight Compute's own
      refuse("Nsight Compute (" + std::string(text.substr(0, text.find('='))) + " is set)", remedy);
    }
  }
  for (const char* variable : {"CUDA_INJECTION64_PATH", "LD_PRELOAD"}) {
    const char* paths = std::getenv(variable);
    if (paths != nullptr && names_a_serialising_tool(paths)) refuse(std::string(variable) + "=" + paths, remedy);
  }
}

}  // namespace train_gpt
