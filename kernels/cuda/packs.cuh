// Elements of global memory in packs: 16 bytes per access where a row's length allows it, else one element. Arithmetic
// is in fp32 whatever the elements are.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace train_gpt::cuda {

using bf16 = __nv_bfloat16;

// Elements in 16 bytes.
template <typename Float>
inline constexpr int kWide = static_cast<int>(16 / sizeof(Float));

__device__ __forceinline__ float as_float(float x) { return x; }
__device__ __forceinline__ float as_float(bf16 x) { return __bfloat162float(x); }

template <typename Float>
__device__ __forceinline__ Float rounded(float x);
template <>
__device__ __forceinline__ float rounded<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 rounded<bf16>(float x) {
  return __float2bfloat16(x);  // to nearest, ties to even
}

// Aligned to itself, as one access wants it; beyond 16 bytes it is several accesses.
template <typename Float, int kWidth>
struct alignas(sizeof(Float) * kWidth < 16 ? sizeof(Float) * kWidth : 16) Pack {
  Float element[kWidth];
};

// x = p[0..kWidth); p is aligned to the pack.
template <int kWidth, typename Float>
__device__ __forceinline__ void load(float (&x)[kWidth], const Float* p) {
  const Pack<Float, kWidth> pack = *reinterpret_cast<const Pack<Float, kWidth>*>(p);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) x[i] = as_float(pack.element[i]);
}

template <int kWidth, typename Float>
__device__ __forceinline__ void store(Float* p, const float (&x)[kWidth]) {
  Pack<Float, kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) pack.element[i] = rounded<Float>(x[i]);
  *reinterpret_cast<Pack<Float, kWidth>*>(p) = pack;
}

// The same at the end of a buffer, of which only the first `count` elements are left; the others are read as 0.
template <int kWidth, typename Float>
__device__ __forceinline__ void load(float (&x)[kWidth], const Float* p, int count) {
  if (count == kWidth) return load<kWidth>(x, p);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) x[i] = i < count ? as_float(p[i]) : 0.0F;
}

template <int kWidth, typename Float>
__device__ __forceinline__ void store(Float* p, const float (&x)[kWidth], int count) {
  if (count == kWidth) return store<kWidth>(p, x);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (i < count) p[i] = rounded<Float>(x[i]);
  }
}

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace train_gpt::cuda
