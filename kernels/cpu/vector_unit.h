// The widest vectors that the compiler may use here, and the register tile that suits them: accumulators fill the
// registers, the rest holds two vectors of the right factor and one number of the left. None of this changes a bit of
// any result: see product.h.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions only
#endif

namespace train_gpt::cpu {

#if defined(__AVX512F__)
inline constexpr std::int64_t kVectorLanes = 16, kTileRows = 12;
inline constexpr const char* kVectorUnit = "AVX-512";
#elif defined(__AVX2__)
inline constexpr std::int64_t kVectorLanes = 8, kTileRows = 6;
inline constexpr const char* kVectorUnit = "AVX2";
#elif defined(__ARM_NEON)
inline constexpr std::int64_t kVectorLanes = 4, kTileRows = 12;
inline constexpr const char* kVectorUnit = "NEON";
#else
inline constexpr std::int64_t kVectorLanes = 4, kTileRows = 6;
inline constexpr const char* kVectorUnit = "vectors of 4";
#endif
inline constexpr std::int64_t kTileVectors = 2;
inline constexpr std::int64_t kTileColumns = kTileVectors * kVectorLanes;

using Vector [[gnu::vector_size(kVectorLanes * sizeof(float))]] = float;

[[gnu::always_inline]] inline Vector load(const float* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

[[gnu::always_inline]] inline void store(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }

// The first n lanes, 0 <= n <= kVectorLanes; the others are 0.
[[gnu::always_inline]] inline Vector load(const float* p, std::int64_t n) {
#if defined(__AVX512F__)
  return (Vector)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << n) - 1), p);
#else
  Vector v{};
  std::memcpy(&v, p, static_cast<std::size_t>(n) * sizeof(float));
  return v;
#endif
}

[[gnu::always_inline]] inline void store(float* p, Vector v, std::int64_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << n) - 1), (__m512)v);
#else
  std::memcpy(p, &v, static_cast<std::size_t>(n) * sizeof(float));
#endif
}

[[gnu::always_inline]] inline Vector broadcast(float x) { return x - Vector{}; }

// a b + c, rounded once; on processors that cannot do that, twice, with other bits (kFusedMultiplyAdd).
[[gnu::always_inline]] inline Vector multiply_add(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
  return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA)
  return (Vector)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
#if (defined(__AVX2__) && defined(__FMA__)) || (defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA))
inline constexpr bool kFusedMultiplyAdd = true;
#else
inline constexpr bool kFusedMultiplyAdd = false;
#endif

// *number * b + sum, as one instruction that reads the number from memory where there is one: less work for the
// processor than a broadcast of its own, though a load for every sum.
[[gnu::always_inline]] inline Vector multiply_add_number(const float* number, Vector b, Vector sum) {
#if defined(__AVX512F__)
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(b), "m"(*number));
  return sum;
#else
  return multiply_add(broadcast(*number), b, sum);
#endif
}

// a0 b0 a1 b1 .. : the lower or the upper halves of a and b, interleaved.
template <int First, int... Lane>
[[gnu::always_inline]] inline Vector interleave(Vector a, Vector b, std::integer_sequence<int, Lane...>) {
  return __builtin_shufflevector(a, b, (First + Lane / 2 + (Lane % 2) * static_cast<int>(kVectorLanes))...);
}

// rows[i][j] and rows[j][i] change places: log2(lanes) times, row i and row i + lanes / 2 are interleaved into rows 2i
// and 2i + 1.
[[gnu::always_inline]] inline void transpose(Vector (&rows)[kVectorLanes]) {
  using AllLanes = std::make_integer_sequence<int, static_cast<int>(kVectorLanes)>;
  constexpr int kHalf = kVectorLanes / 2;
  for (int stage = 1; stage < kVectorLanes; stage *= 2) {
    Vector next[kVectorLanes];
    for (int i = 0; i < kHalf; ++i) {
      next[2 * i] = interleave<0>(rows[i], rows[i + kHalf], AllLanes{});
      next[2 * i + 1] = interleave<kHalf>(rows[i], rows[i + kHalf], AllLanes{});
    }
    for (int i = 0; i < kVectorLanes; ++i) rows[i] = next[i];
  }
}

}  // namespace train_gpt::cpu
