#include "pipeline/train/sampling.h"

#include <algorithm>
#include <cmath>

namespace train_gpt {

std::int32_t sample_token(std::span<const float> logits, double temperature, double uniform) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) return static_cast<std::int32_t>(likeliest - logits.begin());
  const auto weight = [&](float logit) { return std::exp((static_cast<double>(logit) - *likeliest) / temperature); };
  double total = 0;
  for (const float logit : logits) total += weight(logit);
  double left = uniform * total;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    left -= weight(logits[i]);
    if (left < 0) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(logits.size()) - 1;
}

double uniform_number(std::uint64_t seed, std::int64_t k) {
  std::uint64_t z = seed * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(k + 1) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

}  // namespace train_gpt
