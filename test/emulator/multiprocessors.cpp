#include "multiprocessors.h"

#include "device_properties.h"
#include "report.h"

namespace emulator {
namespace {

int held = 0;
std::string last_holder;

int all() { return device_properties().multiProcessorCount; }

}  // namespace

void hold_multiprocessors(int count, const std::string& what) {
  held += count;
  last_holder = what;
  if (held <= all()) return;
  fail("nccl-residency", what + " starts, and now NCCL's kernels want " + std::to_string(held) + " of " +
                             std::to_string(all()) +
                             " multiprocessors at once: one that does not fit waits for another to end, which may "
                             "wait for this one's peer. Lower ncclConfig_t::maxCTAs");
}

void release_multiprocessors(int count) { held -= count; }

void require_multiprocessors(int target, const std::string& product) {
  const int counted_on = target > 0 ? target : all();
  if (held == 0 || counted_on <= all() - held) return;
  fail("shared-multiprocessors", product + " counts on " + std::to_string(counted_on) + " of " + std::to_string(all()) +
                                     " multiprocessors, while NCCL's kernels hold " + std::to_string(held) +
                                     ", the latest of them " + last_holder +
                                     ": set CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET to what is left");
}

}  // namespace emulator
