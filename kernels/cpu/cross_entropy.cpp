// Fused classifier: one task per row, which stays in cache between its passes.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vector_math.h"

namespace train_gpt::cpu {
namespace {

constexpr std::int64_t kSumBlock = 1024;

// x[i] = exp(x[i] - largest); returns the sum, blocks of 1024 in fp32, the blocks in double.
double exponentiate(float* x, float largest, std::int64_t n) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += kSumBlock) {
    const std::int64_t end = std::min(n, begin + kSumBlock);
    for (std::int64_t i = begin; i < end; ++i) x[i] = exponential(x[i] - largest);
    sum += static_cast<double>(row_sum(x + begin, end - begin));
  }
  return sum;
}

}  // namespace

void CpuDevice::cross_entropy(float* losses, void* logits, const std::int32_t* targets, float dloss, bool with_gradient,
                              std::int64_t rows, std::int64_t V, std::int64_t Vp) {
  pool_.run(rows, [&](std::int64_t row, int) {
    float* x = floats(logits) + row * Vp;
    const std::int32_t target = targets[row];
    if (target < 0) {
      losses[row] = 0;
      if (with_gradient) std::fill(x, x + Vp, 0.0F);
      return;
    }
    const float at_target = x[target];
    const float largest = row_max(x, V);
    const double sum = exponentiate(x, largest, V);
    losses[row] = static_cast<float>(std::log(sum) + (static_cast<double>(largest) - static_cast<double>(at_target)));
    if (!with_gradient) return;
    const float scale = static_cast<float>(static_cast<double>(dloss) / sum);
    for (std::int64_t i = 0; i < V; ++i) x[i] *= scale;
    x[target] -= dloss;
    std::fill(x + V, x + Vp, 0.0F);
  });
}

}  // namespace train_gpt::cpu
