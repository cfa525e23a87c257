#include "data/sample_order.h"

#include <algorithm>

#include "data/splitmix64.h"

namespace train_gpt {

std::int64_t permuted(std::int64_t index, std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  // Each round pairs x with pivot - x (mod count) and swaps the two or not, as a bit decides that both of them compute.
  // Distance from a random permutation falls as (3/4)^(rounds/2): below 1e-4 for every data set that exists.
  constexpr int kRounds = 128;
  const std::uint64_t n = static_cast<std::uint64_t>(count);
  const std::uint64_t key = scattered(splitmix64(seed) + static_cast<std::uint64_t>(epoch));
  std::uint64_t stream = key;
  std::uint64_t x = static_cast<std::uint64_t>(index);
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t pivot = scattered(stream += kGoldenRatio) % n;
    const std::uint64_t round_key = scattered(stream += kGoldenRatio);
    const std::uint64_t partner = pivot >= x ? pivot - x : pivot + (n - x);
    if (scattered(round_key + std::max(x, partner)) & 1) x = partner;
  }
  return static_cast<std::int64_t>(x);
}

std::int64_t SampleOrder::window(std::int64_t step, std::int64_t row) const {
  const std::int64_t sample = step * rows + row;
  const std::int64_t epoch = sample / windows;
  const std::int64_t index = sample % windows;
  return shuffle ? permuted(index, windows, seed, epoch) : index;
}

}  // namespace train_gpt
