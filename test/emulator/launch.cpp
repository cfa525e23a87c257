#include "launch.h"

#include <vector>

#include "counters.h"
#include "device_properties.h"
#include "first_use.h"
#include "function_attributes.h"
#include "memory.h"
#include "report.h"
#include "stream_queue.h"

namespace emulator {
namespace {

std::string text(const dim3& size) {
  return "(" + std::to_string(size.x) + "," + std::to_string(size.y) + "," + std::to_string(size.z) + ")";
}

std::string describe(const Launch& launch) {
  return launch.kernel + "<<<" + text(launch.grid) + ", " + text(launch.block) + ", " +
         std::to_string(launch.dynamic_shared) + ">>> at " + text(launch.where);
}

void check_limits(const Launch& launch) {
  const cudaDeviceProp& device = device_properties();
  const auto fits = [](const dim3& size, const int(&limit)[3]) {
    return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= static_cast<unsigned>(limit[0]) &&
           size.y <= static_cast<unsigned>(limit[1]) && size.z <= static_cast<unsigned>(limit[2]);
  };
  const std::uint64_t threads = std::uint64_t{launch.block.x} * launch.block.y * launch.block.z;
  if (!fits(launch.grid, device.maxGridSize) || !fits(launch.block, device.maxThreadsDim) ||
      threads > static_cast<std::uint64_t>(device.maxThreadsPerBlock)) {
    fail("launch-limits", describe(launch) + ": sizes must be from 1 to grid (" +
                              std::to_string(device.maxGridSize[0]) + "," + std::to_string(device.maxGridSize[1]) +
                              "," + std::to_string(device.maxGridSize[2]) + "), block (" +
                              std::to_string(device.maxThreadsDim[0]) + "," + std::to_string(device.maxThreadsDim[1]) +
                              "," + std::to_string(device.maxThreadsDim[2]) + ") of at most " +
                              std::to_string(device.maxThreadsPerBlock) + " threads");
  }
  if (launch.dynamic_shared > dynamic_shared_limit(launch.function)) {
    fail("shared-memory-limit",
         describe(launch) + ": at most " + std::to_string(dynamic_shared_limit(launch.function)) +
             " bytes unless cudaFuncSetAttribute raises cudaFuncAttributeMaxDynamicSharedMemorySize");
  }
}

void run(const Launch& launch, const std::vector<const void*>& pointers) {
  run_launch(launch);
  for (const void* pointer : pointers) check_red_zones(pointer, describe(launch).c_str());
}

}  // namespace

void submit(std::shared_ptr<Launch> launch, const PointerArgument* pointers, int count, cudaStream_t stream) {
  check_limits(*launch);
  std::vector<const void*> held;
  for (int i = 0; i < count; ++i) {
    if (pointers[i].pointer == nullptr) continue;
    // One past the end is a legal pointer too.
    if (find_memory(pointers[i].pointer).begin == 0 &&
        find_memory(static_cast<const char*>(pointers[i].pointer) - 1).begin == 0) {
      const MemoryRegion region = memory_region();
      const auto at = reinterpret_cast<std::uintptr_t>(pointers[i].pointer);
      fail(at < region.begin || at >= region.end ? "host-pointer" : "use-after-free",
           describe(*launch) + ": argument " + std::to_string(pointers[i].position) + " points to " +
               describe_address(pointers[i].pointer));
    }
    held.push_back(pointers[i].pointer);
  }
  ++counters().launches;
  Stream& queue = find_stream(stream, "launch");
  std::string what = describe(*launch);
  first_launch(launch->function, what);
  issue(queue, OperationKind::device, std::move(what), [launch = std::move(launch), held = std::move(held)] {
    run(*launch, held);
    return true;
  });
}

void require_no_attributes(const cudaLaunchConfig_t& config, Where where) {
  if (config.numAttrs != 0) {
    fail("unsupported", "cudaLaunchKernelEx at " + text(where) + " with attributes (clusters, programmatic launch)");
  }
}

}  // namespace emulator
