// splitmix64 (Steele, Lea and Flood, OOPSLA 2014): the same numbers on every machine and with every standard library.
#pragma once

#include <cstdint>

namespace train_gpt {

inline constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15ULL;  // added to its state

// Its output function: a bijection that scatters nearby values.
constexpr std::uint64_t scattered(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// The number after state x: a bijection of 64-bit numbers that looks random.
constexpr std::uint64_t splitmix64(std::uint64_t x) { return scattered(x + kGoldenRatio); }

}  // namespace train_gpt
