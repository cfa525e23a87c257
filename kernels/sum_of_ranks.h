// The order in which equal parts of n ranks are added, for every communicator that adds on the host. Where n is a power
// of two, parts are added at distance 1, 2, 4, ..: a balanced binary tree, so that ranks which each bring the sum of an
// aligned subtree get the sum that one rank would make of all leaves. Otherwise they are added in rank order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace train_gpt {

// out(count) = sum of parts[r](count) over r. The parts are overwritten; `out` may be one of them.
inline void sum_of_ranks(float* out, std::span<float* const> parts, std::int64_t count) {
  constexpr std::int64_t kBlock = 2048;  // elements of each part, so that all fit in the cache
  const std::size_t ranks = parts.size();
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const auto add = [&](std::size_t to, std::size_t from) {
      float* sum = parts[to] + begin;
      const float* part = parts[from] + begin;
      for (std::int64_t i = 0; i < n; ++i) sum[i] += part[i];
    };
    if (std::has_single_bit(ranks)) {
      for (std::size_t distance = 1; distance < ranks; distance *= 2) {
        for (std::size_t r = 0; r < ranks; r += 2 * distance) add(r, r + distance);
      }
    } else {
      for (std::size_t r = 1; r < ranks; ++r) add(0, r);
    }
    if (out != parts[0]) std::copy_n(parts[0] + begin, n, out + begin);
  }
}

}  // namespace train_gpt
