// Sums of squares per atom, in double and in a fixed order: one block per atom of 65,536 elements. 4 n bytes, 2 n FLOPs
// in double. On a data-centre GPU bound by memory: 124M gradients are 0.5 GB: 0.15 ms on an H100, 0.10 ms on an H200,
// 0.25 ms on an A100; where double runs at 1/64 of the fp32 rate it is bound by arithmetic.
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kPack = 4;

__global__ void __launch_bounds__(kThreads) squared_sums_kernel(double* sums, const float* x, std::int64_t n) {
  __shared__ double partial[kWarp];
  const std::int64_t begin = blockIdx.x * kAtomElements;
  const std::int64_t end = begin + kAtomElements < n ? begin + kAtomElements : n;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x * kPack; i < end; i += kThreads * kPack) {
    float values[kPack];
    load<kPack>(values, x + i, end - i < kPack ? static_cast<int>(end - i) : kPack);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum = fma(static_cast<double>(values[k]), static_cast<double>(values[k]), sum);
  }
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

template <typename Float>
void CudaDevice<Float>::squared_sums(double* sums, const float* x, std::int64_t n) {
  if (n == 0) return;
  squared_sums_kernel<<<blocks_for(n, kAtomElements), kThreads, 0, stream_>>>(sums, x, n);
  CUDA_CHECK(cudaGetLastError());
  progress();
}

TRAIN_GPT_FOR_FLOAT_AND_BF16(squared_sums)

}  // namespace train_gpt::cuda
