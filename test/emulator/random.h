// A small deterministic generator (splitmix64) for the orders.
#pragma once

#include <cstdint>

namespace emulator {

class Random {
 public:
  void start(std::uint64_t seed) { state_ = seed; }
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
    return z ^ z >> 31;
  }
  // Uniform in [0, bound), bound > 0.
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>((next() >> 32) * bound >> 32); }

 private:
  std::uint64_t state_ = 1;
};

}  // namespace emulator
