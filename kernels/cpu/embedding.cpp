#include "kernels/cpu/cpu_device.h"

namespace train_gpt::cpu {
namespace {

constexpr std::int64_t kRowBlock = 16;
constexpr std::int64_t kColumnBlock = 64;

}  // namespace

void CpuDevice::embedding_forward(void* out, const std::int32_t* tokens, const void* wte, const void* wpe,
                                  std::int64_t B, std::int64_t T, std::int64_t C) {
  pool_.run_blocks(B * T, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const float* token = floats(wte) + tokens[n] * C;
      const float* position = floats(wpe) + n % T * C;
      float* sum = floats(out) + n * C;
      for (std::int64_t c = 0; c < C; ++c) sum[c] = token[c] + position[c];
    }
  });
}

// Threads share out columns, not rows: two rows with the same token meet in one thread, in order of their position.
void CpuDevice::embedding_backward(float* dwte, float* dwpe, const void* dout, const std::int32_t* tokens,
                                   std::int64_t B, std::int64_t T, std::int64_t C) {
  pool_.run_blocks(C, kColumnBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = 0; n < B * T; ++n) {
      const float* gradient = floats(dout) + n * C;
      float* token = dwte + tokens[n] * C;
      float* position = dwpe + n % T * C;
      for (std::int64_t c = begin; c < end; ++c) {
        token[c] += gradient[c];
        position[c] += gradient[c];
      }
    }
  });
}

}  // namespace train_gpt::cpu
