#include <cstring>

#include "kernels/cpu/cpu_device.h"

namespace train_gpt::cpu {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;
constexpr std::int64_t kBlockElements = 65536;

}  // namespace

void CpuDevice::zero(void* out, std::int64_t bytes) {
  pool_.run_blocks(bytes, kBlockBytes, [&](std::int64_t begin, std::int64_t end) {
    std::memset(static_cast<char*>(out) + begin, 0, static_cast<std::size_t>(end - begin));
  });
}

void CpuDevice::copy(void* out, const void* in, std::int64_t bytes) {
  if (out == in) return;
  pool_.run_blocks(bytes, kBlockBytes, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<char*>(out) + begin, static_cast<const char*>(in) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

void CpuDevice::add(float* out, const float* in, std::int64_t n) {
  pool_.run_blocks(n, kBlockElements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] += in[i];
  });
}

}  // namespace train_gpt::cpu
