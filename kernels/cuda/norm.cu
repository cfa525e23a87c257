// Sums of squares per atom, in double and in a fixed order: one block per atom of 65,536 elements. 4 n bytes, 2 n FLOPs
// in double. On a data-centre GPU bound by memory: 124M gradients are 0.5 GB: 0.15 ms on an H100, 0.10 ms on an H200,
// 0.25 ms on an A100; where double runs at 1/64 of the fp32 rate it is bound by arithmetic.
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensors.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kPack = 4;

// The sum of squares of the atom that begins at x and has n elements, computed by all threads of a block.
__device__ __forceinline__ void sum_atom(double* result, const float* x, std::int64_t n) {
  __shared__ double partial[kWarp];
  const std::int64_t end = n < kAtomElements ? n : kAtomElements;
  double sum = 0;
  for (std::int64_t i = threadIdx.x * kPack; i < end; i += kThreads * kPack) {
    float values[kPack];
    load<kPack>(values, x + i, end - i < kPack ? static_cast<int>(end - i) : kPack);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum = fma(static_cast<double>(values[k]), static_cast<double>(values[k]), sum);
  }
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) *result = sum;
}

__global__ void __launch_bounds__(kThreads) squared_sums_kernel(double* sums, const float* x, std::int64_t n) {
  const std::int64_t begin = blockIdx.x * kAtomElements;
  sum_atom(sums + blockIdx.x, x + begin, n - begin);
}

__global__ void __launch_bounds__(kThreads)
    squared_sums_all_kernel(double* sums, const float* x, TensorTable<Device::ArenaTensor> table) {
  const int t = table.tensor_of(blockIdx.x);
  const std::int64_t begin = (blockIdx.x - table.first_block[t]) * kAtomElements;
  sum_atom(sums + blockIdx.x, x + table.entry[t].offset + begin, table.entry[t].elements - begin);
}

}  // namespace

template <typename Float>
void CudaDevice<Float>::squared_sums(double* sums, const float* x, std::int64_t n) {
  if (n == 0) return;
  squared_sums_kernel<<<blocks_for(n, kAtomElements), kThreads, 0, stream_>>>(sums, x, n);
  CUDA_CHECK(cudaGetLastError());
  progress();
}

template <typename Float>
void CudaDevice<Float>::squared_sums_all(double* sums, const float* x, std::span<const ArenaTensor> tensors) {
  const TensorTable<ArenaTensor> table = tensor_table(tensors, kAtomElements);
  const unsigned blocks = table.first_block[table.count];
  if (blocks == 0) return;
  squared_sums_all_kernel<<<blocks, kThreads, 0, stream_>>>(sums, x, table);
  CUDA_CHECK(cudaGetLastError());
  progress();
}

TRAIN_GPT_FOR_FLOAT_AND_BF16(squared_sums)
TRAIN_GPT_FOR_FLOAT_AND_BF16(squared_sums_all)

}  // namespace train_gpt::cuda
