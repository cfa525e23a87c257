// LayerNorm (Ba et al. 2016), one warp per row, statistics in fp32 by two passes over the row (E[x^2] - E[x]^2
// cancels), of which all but the first read from L1.
//
//   forward           y = (x - mean) rstd weight + bias              2 e N C bytes,     ~8 N C FLOPs
//   backward, input   din = dresidual + rstd (g - mean(g) - xhat mean(g xhat)), g = dout weight
//                     the residual's gradient is added on the way    (3 or 4) e N C bytes, ~14 N C FLOPs
//   backward, weight  dweight += sum dout xhat, dbias += sum dout    2 e N C bytes,     ~5 N C FLOPs (column_sums.cuh)
//
// All bound by memory. N = 8192, C = 768, bf16, on an H100 (3.35 TB/s) / H200 (4.8 TB/s) / A100 (2.0 TB/s): forward and
// backward, weight 25 MB: 8 / 5 / 13 us; backward, input 50 MB: 15 / 10 / 25 us.
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/operation_parts.h"
#include "kernels/cuda/reduce.cuh"

namespace train_gpt::cuda {
namespace {

constexpr float kEpsilon = 1e-5F;
constexpr int kThreads = 128;
constexpr int kRows = kThreads / kWarp;

template <typename Float, int kWidth>
__global__ void __launch_bounds__(kThreads)
    layernorm_forward_kernel(Float* out, float* mean, float* rstd, const Float* in, const Float* weight,
                             const Float* bias, std::int64_t N, std::int64_t C) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kRows + threadIdx.x / kWarp;
  if (n >= N) return;
  const std::int64_t first = threadIdx.x % kWarp * kWidth;
  const Float* row = in + n * C;
  float x[kWidth];
  float sum = 0;
  for (std::int64_t c = first; c < C; c += kWarp * kWidth) {
    load<kWidth>(x, row + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += x[i];
  }
  const float mu = warp_sum(sum) / static_cast<float>(C);
  float squares = 0;
  for (std::int64_t c = first; c < C; c += kWarp * kWidth) {
    load<kWidth>(x, row + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) squares = fmaf(x[i] - mu, x[i] - mu, squares);
  }
  const float scale = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(C) + kEpsilon);
  for (std::int64_t c = first; c < C; c += kWarp * kWidth) {
    float w[kWidth], b[kWidth];
    load<kWidth>(x, row + c);
    load<kWidth>(w, weight + c);
    load<kWidth>(b, bias + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x[i] = fmaf((x[i] - mu) * scale, w[i], b[i]);
    store<kWidth>(out + n * C + c, x);
  }
  if (first == 0) {
    mean[n] = mu;
    rstd[n] = scale;
  }
}

// din may be dresidual: a thread writes where it alone has read.
template <typename Float, int kWidth>
__global__ void __launch_bounds__(kThreads)
    layernorm_backward_input_kernel(Float* din, const Float* dout, const Float* dresidual, const Float* in,
                                    const float* mean, const float* rstd, const Float* weight, std::int64_t N,
                                    std::int64_t C) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kRows + threadIdx.x / kWarp;
  if (n >= N) return;
  const std::int64_t first = threadIdx.x % kWarp * kWidth;
  const float mu = mean[n], scale = rstd[n];
  float x[kWidth], dy[kWidth], w[kWidth];
  float sum_g = 0, sum_g_xhat = 0;
  for (std::int64_t c = first; c < C; c += kWarp * kWidth) {
    load<kWidth>(x, in + n * C + c);
    load<kWidth>(dy, dout + n * C + c);
    load<kWidth>(w, weight + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float g = dy[i] * w[i];
      sum_g += g;
      sum_g_xhat = fmaf(g, (x[i] - mu) * scale, sum_g_xhat);
    }
  }
  const float mean_g = warp_sum(sum_g) / static_cast<float>(C);
  const float mean_g_xhat = warp_sum(sum_g_xhat) / static_cast<float>(C);
  for (std::int64_t c = first; c < C; c += kWarp * kWidth) {
    load<kWidth>(x, in + n * C + c);
    load<kWidth>(dy, dout + n * C + c);
    load<kWidth>(w, weight + c);
    float residual[kWidth] = {};
    if (dresidual != nullptr) load<kWidth>(residual, dresidual + n * C + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float xhat = (x[i] - mu) * scale;
      x[i] = residual[i] + scale * fmaf(-xhat, mean_g_xhat, fmaf(dy[i], w[i], -mean_g));
    }
    store<kWidth>(din + n * C + c, x);
  }
}

template <typename Float>
struct LayerNormTerms {
  const Float* dout;
  const Float* in;
  const float* mean;
  const float* rstd;
  std::int64_t C;

  template <int kWidth>
  __device__ void operator()(std::int64_t row, std::int64_t column, float (&values)[2][kWidth]) const {
    float x[kWidth];
    load<kWidth>(x, in + row * C + column);
    load<kWidth>(values[1], dout + row * C + column);
    const float mu = mean[row], scale = rstd[row];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[0][i] = values[1][i] * ((x[i] - mu) * scale);
  }
};

}  // namespace

template <typename Float>
void CudaDevice<Float>::layernorm_forward(void* out, float* mean, float* rstd, const void* in, const void* weight,
                                          const void* bias, std::int64_t N, std::int64_t C) {
  constexpr int kWidth = kWide<Float>;
  const unsigned blocks = blocks_for(N, kRows);
  if (C % kWidth == 0) {
    layernorm_forward_kernel<Float, kWidth>
        <<<blocks, kThreads, 0, stream_>>>(low(out), mean, rstd, low(in), low(weight), low(bias), N, C);
  } else {
    layernorm_forward_kernel<Float, 1>
        <<<blocks, kThreads, 0, stream_>>>(low(out), mean, rstd, low(in), low(weight), low(bias), N, C);
  }
  CUDA_CHECK(cudaGetLastError());
  progress();
}

template <typename Float>
void CudaDevice<Float>::layernorm_backward_input(void* din, const void* dout, const void* dresidual, const void* in,
                                                 const float* mean, const float* rstd, const void* weight,
                                                 std::int64_t N, std::int64_t C) {
  constexpr int kWidth = kWide<Float>;
  const unsigned blocks = blocks_for(N, kRows);
  if (C % kWidth == 0) {
    layernorm_backward_input_kernel<Float, kWidth>
        <<<blocks, kThreads, 0, stream_>>>(low(din), low(dout), low(dresidual), low(in), mean, rstd, low(weight), N, C);
  } else {
    layernorm_backward_input_kernel<Float, 1>
        <<<blocks, kThreads, 0, stream_>>>(low(din), low(dout), low(dresidual), low(in), mean, rstd, low(weight), N, C);
  }
  CUDA_CHECK(cudaGetLastError());
  progress();
}

std::int64_t layernorm_backward_weight_scratch_bytes(std::int64_t N, std::int64_t C) {
  return column_sums_scratch_bytes(2, N, C);
}

template <typename Float>
void CudaDevice<Float>::layernorm_backward_weight(float* dweight, float* dbias, const void* dout, const void* in,
                                                  const float* mean, const float* rstd, std::int64_t N,
                                                  std::int64_t C) {
  float* scratch = scratch_of(layernorm_backward_weight_scratch_bytes(N, C));
  const LayerNormTerms<Float> terms{low(dout), low(in), mean, rstd, C};
  const ColumnResults<2> results{{dweight, dbias}};
  constexpr int kWidth = kWide<Float>;
  if (C % kWidth == 0) {
    add_column_sums<2, kWidth>(results, N, C, terms, scratch, stream_);
  } else {
    add_column_sums<2, 1>(results, N, C, terms, scratch, stream_);
  }
  progress();
}

TRAIN_GPT_FOR_FLOAT_AND_BF16(layernorm_forward)
TRAIN_GPT_FOR_FLOAT_AND_BF16(layernorm_backward_input)
TRAIN_GPT_FOR_FLOAT_AND_BF16(layernorm_backward_weight)

}  // namespace train_gpt::cuda
