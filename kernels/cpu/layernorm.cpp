#include <cmath>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/lanes.h"

namespace train_gpt::cpu {
namespace {

constexpr float kEpsilon = 1e-5F;
constexpr std::int64_t kRowBlock = 8;

}  // namespace

void CpuDevice::layernorm_forward(void* out, float* mean, float* rstd, const void* in, const void* weight,
                                  const void* bias, std::int64_t N, std::int64_t C) {
  const float* gain = floats(weight);
  const float* shift = floats(bias);
  pool_.run_blocks(N, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const float* x = floats(in) + n * C;
      float* y = floats(out) + n * C;
      const float mu = row_sum(x, C) / static_cast<float>(C);
      // Two passes: E[x^2] - E[x]^2 cancels. The first writes x - mu, so that lanes beyond C stay zero.
      for (std::int64_t c = 0; c < C; ++c) y[c] = x[c] - mu;
      const float variance = row_sum(y, C, [](Lanes d) { return d * d; }) / static_cast<float>(C);
      const float scale = 1.0F / std::sqrt(variance + kEpsilon);
      for (std::int64_t c = 0; c < C; ++c) y[c] = std::fma(y[c] * scale, gain[c], shift[c]);
      mean[n] = mu;
      rstd[n] = scale;
    }
  });
}

// With xhat = (x - mean) rstd and g = dout weight: din = rstd (g - mean(g) - xhat mean(g xhat)).
void CpuDevice::layernorm_backward_input(void* din, const void* dout, const void* dresidual, const void* in,
                                         const float* mean, const float* rstd, const void* weight, std::int64_t N,
                                         std::int64_t C) {
  const float* gain = floats(weight);
  pool_.run_blocks(N, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const float* x = floats(in) + n * C;
      const float* dy = floats(dout) + n * C;
      const float* residual = dresidual == nullptr ? nullptr : floats(dresidual) + n * C;
      float* dx = floats(din) + n * C;
      const float mu = mean[n], scale = rstd[n];
      Lanes sum_g{}, sum_g_xhat{};
      std::int64_t c = 0;
      const auto accumulate = [&](Lanes dy_lanes, Lanes weight_lanes, Lanes x_lanes) {
        const Lanes g = dy_lanes * weight_lanes;
        sum_g += g;
        sum_g_xhat += g * ((x_lanes - mu) * scale);
      };
      for (; c + kLanes <= C; c += kLanes) accumulate(load_lanes(dy + c), load_lanes(gain + c), load_lanes(x + c));
      if (c < C) {
        accumulate(load_lanes(dy + c, C - c, 0), load_lanes(gain + c, C - c, 0), load_lanes(x + c, C - c, mu));
      }
      const float mean_g = sum_of_lanes(sum_g) / static_cast<float>(C);
      const float mean_g_xhat = sum_of_lanes(sum_g_xhat) / static_cast<float>(C);
      const auto gradient = [&](std::int64_t i) {
        const float xhat = (x[i] - mu) * scale;
        return scale * std::fma(-xhat, mean_g_xhat, std::fma(dy[i], gain[i], -mean_g));
      };
      if (residual == nullptr) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < C; ++i) dx[i] = gradient(i);
      } else {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < C; ++i) dx[i] = residual[i] + gradient(i);
      }
    }
  });
}

void CpuDevice::layernorm_backward_weight(float* dweight, float* dbias, const void* dout, const void* in,
                                          const float* mean, const float* rstd, std::int64_t N, std::int64_t C) {
  const float* dy = floats(dout);
  const float* x = floats(in);
  pool_.run_blocks(C, kStripColumns, [&](std::int64_t begin, std::int64_t end) {
    float* const sums[2] = {dweight, dbias};
    add_column_sums<2>(sums, N, begin, end, [&](std::int64_t n, std::int64_t c, float* values) {
      const float gradient = dy[n * C + c];
      values[0] = gradient * ((x[n * C + c] - mean[n]) * rstd[n]);
      values[1] = gradient;
    });
  });
}

}  // namespace train_gpt::cpu
