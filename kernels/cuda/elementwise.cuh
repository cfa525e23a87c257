// Kernels that do the same to every element: a pack of Operation::kWidth elements per thread, 16 bytes of the narrowest
// type. Buffers are 16-byte aligned; their length may be anything.
//
// An Operation is a struct with `void operator()(std::int64_t i, int count) const`: elements i .. i + count - 1, where
// count is kWidth except in the last thread (load and store of packs.cuh take it).
#pragma once

#include "kernels/cuda/check.h"
#include "kernels/cuda/packs.cuh"

namespace train_gpt::cuda {

inline constexpr int kElementwiseThreads = 256;

template <typename Operation>
__global__ void __launch_bounds__(kElementwiseThreads) elementwise_kernel(Operation operation, std::int64_t n) {
  constexpr int kWidth = Operation::kWidth;
  const std::int64_t i = (std::int64_t{blockIdx.x} * kElementwiseThreads + threadIdx.x) * kWidth;
  if (i < n) operation(i, n - i < kWidth ? static_cast<int>(n - i) : kWidth);
}

template <typename Operation>
void elementwise(const Operation& operation, std::int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  const unsigned blocks = blocks_for(n, kElementwiseThreads * Operation::kWidth);
  elementwise_kernel<Operation><<<blocks, kElementwiseThreads, 0, stream>>>(operation, n);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace train_gpt::cuda
