// delta = rowsum(dO o O), which turns dP into dS = P (dP - delta) in the backward pass of attention (FlashAttention-2,
// Dao 2023). The heads of a position lie side by side, so a group of lanes takes one stretch of C / NH elements, and
// neighbouring groups neighbouring stretches.
//
// Bytes: 2 e B T C + 4 B T NH; 2 B T C FLOPs. Bound by memory: B = 8, T = 1024, C = 768, bf16 is 25 MB: 8 us on an H100
// (3.35 TB/s), 5 us on an H200 (4.8 TB/s), 13 us on an A100 (2.0 TB/s).
#include "kernels/cuda/attention_delta.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // of a group: 64 bf16 in one access each

template <typename Float, int kWidth>
__global__ void __launch_bounds__(kThreads)
    attention_delta_kernel(float* delta, const Float* dout, const Float* out, std::int64_t B, std::int64_t T,
                           std::int64_t NH, std::int64_t head_size) {
  const std::int64_t index = std::int64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes;  // (B,T,NH)
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const bool present = index < B * T * NH;
  float sum = 0;
  for (std::int64_t d = lane * kWidth; present && d < head_size; d += kLanes * kWidth) {
    float x[kWidth], y[kWidth];
    load<kWidth>(x, dout + index * head_size + d);
    load<kWidth>(y, out + index * head_size + d);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum = fmaf(x[i], y[i], sum);
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
  const std::int64_t b = index / (T * NH), t = index / NH % T, h = index % NH;
  if (present && lane == 0) delta[(b * NH + h) * T + t] = sum;
}

}  // namespace

template <typename Float>
void attention_delta(float* delta, const Float* dout, const Float* out, std::int64_t B, std::int64_t T, std::int64_t C,
                     std::int64_t NH, cudaStream_t stream) {
  constexpr int kWidth = kWide<Float>;
  const std::int64_t head_size = C / NH;
  const unsigned blocks = blocks_for(B * T * NH, kThreads / kLanes);
  if (head_size % kWidth == 0) {
    attention_delta_kernel<Float, kWidth><<<blocks, kThreads, 0, stream>>>(delta, dout, out, B, T, NH, head_size);
  } else {
    attention_delta_kernel<Float, 1><<<blocks, kThreads, 0, stream>>>(delta, dout, out, B, T, NH, head_size);
  }
  CUDA_CHECK(cudaGetLastError());
}

template void attention_delta<float>(float*, const float*, const float*, std::int64_t, std::int64_t, std::int64_t,
                                     std::int64_t, cudaStream_t);
template void attention_delta<bf16>(float*, const bf16*, const bf16*, std::int64_t, std::int64_t, std::int64_t,
                                    std::int64_t, cudaStream_t);

}  // namespace train_gpt::cuda
