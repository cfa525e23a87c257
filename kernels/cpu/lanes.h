// Sums and maxima along a row: 16 interleaved partial results, folded pairwise at the end. The order depends on the
// length alone, never on the instruction set or on alignment. (Without -ffast-math a compiler may not vectorise a sum.)
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than the machine's are passed in memory; all of it is inlined
#endif

namespace train_gpt {

inline constexpr std::int64_t kLanes = 16;
template <typename Element, int Count>
struct VectorOf {
  using type [[gnu::vector_size(Count * sizeof(Element))]] = Element;
};
using Lanes = VectorOf<float, kLanes>::type;

[[gnu::always_inline]] inline Lanes load_lanes(const float* p) {
  Lanes lanes;
  std::memcpy(&lanes, p, sizeof lanes);
  return lanes;
}

// The first n < 16 lanes; the others are `fill`.
[[gnu::always_inline]] inline Lanes load_lanes(const float* p, std::int64_t n, float fill) {
  Lanes lanes = fill - Lanes{};
  std::memcpy(&lanes, p, static_cast<std::size_t>(n) * sizeof(float));
  return lanes;
}

// ((l0 + l8) + (l4 + l12)) + .. : halves are added until one element is left.
template <typename Element, int Count>
[[gnu::always_inline]] inline Element fold(const typename VectorOf<Element, Count>::type& lanes) {
  if constexpr (Count == 1) {
    return lanes[0];
  } else {
    typename VectorOf<Element, Count / 2>::type low, high;
    std::memcpy(&low, &lanes, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&lanes) + sizeof low, sizeof high);
    return fold<Element, Count / 2>(low + high);
  }
}

[[gnu::always_inline]] inline float sum_of_lanes(const Lanes& lanes) { return fold<float, kLanes>(lanes); }

// Sum of f(lanes of x) over x[0..n) where f maps zero lanes to zero.
template <typename Function>
[[gnu::always_inline]] inline float row_sum(const float* x, std::int64_t n, const Function& f) {
  Lanes sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sums += f(load_lanes(x + i));
  if (i < n) sums += f(load_lanes(x + i, n - i, 0.0F));
  return sum_of_lanes(sums);
}

inline float row_sum(const float* x, std::int64_t n) {
  return row_sum(x, n, [](Lanes lanes) { return lanes; });
}

// Largest of x[0..n), n >= 1. NaN in x: unspecified.
inline float row_max(const float* x, std::int64_t n) {
  Lanes largest = x[0] - Lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Lanes lanes = load_lanes(x + i);
    largest = lanes > largest ? lanes : largest;
  }
  if (i < n) {
    const Lanes lanes = load_lanes(x + i, n - i, x[0]);
    largest = lanes > largest ? lanes : largest;
  }
  float result = largest[0];
  for (std::int64_t lane = 1; lane < kLanes; ++lane) result = largest[lane] > result ? largest[lane] : result;
  return result;
}

}  // namespace train_gpt
