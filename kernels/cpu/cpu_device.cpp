#include "kernels/cpu/cpu_device.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "kernels/cpu/tiles.h"

namespace train_gpt {
namespace cpu {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

}  // namespace

CpuDevice::CpuDevice(int threads) : pool_(threads) {}

std::string CpuDevice::describe() const {
  const int threads = pool_.threads();
  return "cpu: " + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") + kVectorUnit + ", fp32";
}

Arithmetic CpuDevice::arithmetic() const {
  return {.library = "C++ kernels",
          .processor = kFusedMultiplyAdd ? "any with fused multiply-adds" : "any without fused multiply-adds",
          .precision = "fp32"};
}

void* CpuDevice::allocate(std::int64_t bytes) {
  if (bytes < 0) throw std::invalid_argument("cannot allocate " + std::to_string(bytes) + " bytes");
  const std::int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const std::int64_t rounded = (std::max<std::int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* pointer = rounded < bytes
                      ? nullptr
                      : std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(rounded));
  if (pointer == nullptr) {
    throw std::runtime_error("out of memory: the cpu device cannot allocate " + std::to_string(bytes) + " bytes");
  }
#ifdef MADV_HUGEPAGE
  // Passes over parameters and packing for matrix products touch a new page every few microseconds; a refusal costs
  // nothing.
  if (alignment == kHugePage) (void)madvise(pointer, static_cast<std::size_t>(rounded), MADV_HUGEPAGE);
#endif
  return pointer;
}

void CpuDevice::release(void* pointer) { std::free(pointer); }

// The largest product that needs scratch is an Mlp's, (N,4C).
std::int64_t CpuDevice::workspace_bytes(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t /*NH*/,
                                        std::int64_t /*Vp*/) const {
  const std::int64_t floats =
      std::max(kProductScratch + tile_scratch_floats(B * T, 4 * C), attention_scratch_floats(T));
  return pool_.threads() * floats * static_cast<std::int64_t>(sizeof(float));
}

Device::Mark CpuDevice::mark() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Scratch CpuDevice::scratch(std::int64_t floats_per_worker) const {
  const std::int64_t needed = pool_.threads() * floats_per_worker * static_cast<std::int64_t>(sizeof(float));
  if (workspace_ == nullptr || workspace_bytes_ < needed) {
    throw std::logic_error("the cpu device has a workspace of " + std::to_string(workspace_bytes_) +
                           " bytes and needs " + std::to_string(needed) + " (workspace_bytes, use_workspace)");
  }
  return {workspace_, floats_per_worker};
}

}  // namespace cpu

std::unique_ptr<Device> make_cpu_device(int threads) { return std::make_unique<cpu::CpuDevice>(threads); }

}  // namespace train_gpt
