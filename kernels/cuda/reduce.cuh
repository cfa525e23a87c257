// Sums and maxima over a warp or a block, always in the same order: a butterfly within the warp, then one over the
// warps.
#pragma once

#include <cuda_runtime.h>

namespace train_gpt::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

template <typename Number>
__device__ __forceinline__ Number warp_sum(Number x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(kAllLanes, x, distance);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  return x;
}

// The sum over a block of whole warps, in every thread. `partial` is used by one call only: a second one would need a
// barrier in front.
template <typename Number>
__device__ __forceinline__ Number block_sum(Number x, Number (&partial)[kWarp]) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  x = warp_sum(x);
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / kWarp ? partial[lane] : Number(0));
}

}  // namespace train_gpt::cuda
