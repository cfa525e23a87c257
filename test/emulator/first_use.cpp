#include "first_use.h"

#include <cstdlib>
#include <set>
#include <string_view>

#include "report.h"
#include "stream_queue.h"

namespace emulator {
namespace {

bool loads_eagerly() {
  static const bool eagerly = [] {
    const char* mode = std::getenv("CUDA_MODULE_LOADING");
    return mode != nullptr && std::string_view(mode) == "EAGER";
  }();
  return eagerly;
}

bool is_checked() {
  const char* setting = std::getenv("EMULATOR_FIRST_USE");
  return setting == nullptr || std::string_view(setting) != "0";
}

void require_no_message(const std::string& what, const std::string& why) {
  const std::string* message = pending_message();
  if (message == nullptr || !is_checked()) return;
  fail("first-use", what + " while " + *message + " is pending: " + why);
}

}  // namespace

void cuda_starts() { loads_eagerly(); }

void first_launch(const void* function, const std::string& what) {
  static std::set<const void*> launched;
  if (loads_eagerly() || !launched.insert(function).second) return;
  require_no_message(what,
                     "the first launch of a kernel loads it and may wait for an idle device. "
                     "Launch it once before, or set CUDA_MODULE_LOADING=EAGER before CUDA starts");
}

void first_product(const std::string& what) {
  static std::set<std::string> run;
  if (!run.insert(what).second) return;
  require_no_message(what,
                     "the first product of its kind loads an algorithm and may wait for an idle device. "
                     "Run it once before");
}

void first_collective(const std::string& what) {
  static std::set<std::string> run;
  if (!run.insert(what).second) return;
  require_no_message(what,
                     "the first collective of its kind and size may connect its ranks for another of NCCL's "
                     "algorithms, and blocks the host meanwhile. Run it once before");
}

void allocates(const std::string& what) { require_no_message(what, "it may wait for an idle device. Allocate before"); }

}  // namespace emulator
