// One shard of the classifier at a time; one task per row, which stays in cache between its passes.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/vector_math.h"

namespace train_gpt::cpu {
namespace {

constexpr std::int64_t kSumBlock = 1024;
constexpr std::int64_t kRowBlock = 8;

// out[i] = exp(x[i] - largest), padding 0. out null: not kept. Returns the sum: of blocks of 1024 in fp32, of the
// blocks in double.
double exponentiate(float* out, const float* x, float largest, const VocabularyShard& shard) {
  float block[kSumBlock];
  double sum = 0;
  for (std::int64_t begin = 0; begin < shard.columns; begin += kSumBlock) {
    const std::int64_t count = std::min(kSumBlock, shard.columns - begin);
    float* const e = out == nullptr ? block : out + begin;
    const float* const scores = x + begin;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) e[i] = exponential(scores[i] - largest);
    sum += static_cast<double>(row_sum(e, count));
  }
  if (out != nullptr) std::fill(out + shard.columns, out + shard.width, 0.0F);
  return sum;
}

bool holds(const VocabularyShard& shard, std::int32_t target) {
  return target >= shard.begin && target < shard.begin + shard.columns;
}

void scale(float* x, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace

void CpuDevice::shard_scores(float* scores, const void* in, const void* weight, std::int64_t N, std::int64_t C,
                             std::int64_t OC) {
  matmul_forward(scores, in, weight, nullptr, N, C, OC);
}

void CpuDevice::shard_mixture(float* mixture, const void* in, const void* weight, bool first, std::int64_t N,
                              std::int64_t C, std::int64_t OC) {
  const Destination to{.out = mixture, .stride = C, .start = first ? nullptr : mixture};
  const Scratch buffers = scratch(kProductScratch);
  for_each_tile(pool_, N, C, tile_shape(N, C, pool_.threads()), [&](const Tile& tile, int worker) {
    multiply_tile(pool_, worker, buffers.of(worker), tile, corner(to, tile.row, tile.column), {floats(in), OC, false},
                  {floats(weight), C, false}, OC);
  });
}

void CpuDevice::fold_scores(const SoftmaxFold& fold, void* exponentials, float* largest_then, const float* scores,
                            const std::int32_t* targets, const VocabularyShard& shard, bool first, std::int64_t rows,
                            std::int64_t C) {
  pool_.run(rows, [&](std::int64_t row, int) {
    const float* x = scores + row * shard.width;
    const float in_shard = row_max(x, shard.columns);
    const float before = first ? in_shard : fold.largest[row];
    const float largest = std::max(before, in_shard);
    if (first) fold.at_target[row] = 0;
    if (holds(shard, targets[row])) fold.at_target[row] = x[targets[row] - shard.begin];
    const double sum =
        exponentiate(exponentials == nullptr ? nullptr : floats(exponentials) + row * shard.width, x, largest, shard);
    const float change = largest == before ? 1.0F : exponential(before - largest);
    const double so_far = first ? 0.0 : static_cast<double>(fold.sum[row]) * static_cast<double>(change);
    if (!first && change != 1.0F && fold.mixture != nullptr) scale(fold.mixture + row * C, change, C);
    fold.sum[row] = static_cast<float>(so_far + sum);
    fold.largest[row] = largest;
    if (largest_then != nullptr) largest_then[row] = largest;
  });
}

void CpuDevice::score_exponentials(void* exponentials, const float* scores, const float* largest_then,
                                   const VocabularyShard& shard, std::int64_t rows) {
  pool_.run(rows, [&](std::int64_t row, int) {
    exponentiate(floats(exponentials) + row * shard.width, scores + row * shard.width, largest_then[row], shard);
  });
}

void CpuDevice::finish_cross_entropy(float* losses, const SoftmaxFold& fold, const std::int32_t* targets, float dloss,
                                     std::int64_t rows, std::int64_t C) {
  pool_.run_blocks(rows, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto sum = static_cast<double>(fold.sum[row]);
      const bool valid = targets[row] >= 0;
      const double above = static_cast<double>(fold.largest[row]) - static_cast<double>(fold.at_target[row]);
      losses[row] = valid ? static_cast<float>(std::log(sum) + above) : 0.0F;
      if (fold.mixture == nullptr) continue;
      float* mixture = fold.mixture + row * C;
      if (valid)
        scale(mixture, static_cast<float>(static_cast<double>(dloss) / sum), C);
      else
        std::fill(mixture, mixture + C, 0.0F);
    }
  });
}

void CpuDevice::subtract_targets(float* din, const void* weight, const std::int32_t* targets, float dloss,
                                 const VocabularyShard& shard, std::int64_t rows, std::int64_t C) {
  pool_.run_blocks(rows, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      if (!holds(shard, targets[row])) continue;
      const float* from = floats(weight) + (targets[row] - shard.begin) * C;
      float* out = din + row * C;
      for (std::int64_t c = 0; c < C; ++c) out[c] = std::fma(-dloss, from[c], out[c]);
    }
  });
}

void CpuDevice::score_gradients(void* dscores, const void* exponentials, const float* largest_then,
                                const float* largest, const float* sum, const std::int32_t* targets, float dloss,
                                const VocabularyShard& shard, std::int64_t rows) {
  pool_.run(rows, [&](std::int64_t row, int) {
    const float* e = floats(exponentials) + row * shard.width;
    float* out = floats(dscores) + row * shard.width;
    if (targets[row] < 0) {
      std::fill(out, out + shard.width, 0.0F);
      return;
    }
    const float change = largest_then[row] == largest[row] ? 1.0F : exponential(largest_then[row] - largest[row]);
    const auto factor =
        static_cast<float>(static_cast<double>(change) * static_cast<double>(dloss) / static_cast<double>(sum[row]));
#pragma GCC ivdep
    for (std::int64_t i = 0; i < shard.width; ++i) out[i] = e[i] * factor;
    if (holds(shard, targets[row])) out[targets[row] - shard.begin] -= dloss;
  });
}

}  // namespace train_gpt::cpu
