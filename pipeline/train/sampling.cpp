#include "pipeline/train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace train_gpt {

namespace {

// Sets the weights of all ids to 0 that top_k and top_p leave out.
void cut(std::vector<double>& weights, const Sampling& sampling) {
  const bool all_k = sampling.top_k <= 0 || sampling.top_k >= static_cast<std::int64_t>(weights.size());
  if (all_k && sampling.top_p >= 1) return;
  std::vector<std::size_t> likeliest_first(weights.size());
  std::iota(likeliest_first.begin(), likeliest_first.end(), std::size_t{0});
  std::stable_sort(likeliest_first.begin(), likeliest_first.end(),
                   [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  const std::size_t k = all_k ? weights.size() : static_cast<std::size_t>(sampling.top_k);
  double total = 0;
  for (std::size_t i = 0; i < k; ++i) total += weights[likeliest_first[i]];
  std::size_t kept = 0;
  for (double sum = 0; kept < k && (kept == 0 || sum < sampling.top_p * total); ++kept)
    sum += weights[likeliest_first[kept]];
  for (std::size_t i = kept; i < weights.size(); ++i) weights[likeliest_first[i]] = 0;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature <= 0) return static_cast<std::int32_t>(likeliest - logits.begin());
  std::vector<double> weights;
  weights.reserve(logits.size());
  for (const float logit : logits) {
    weights.push_back(std::exp((static_cast<double>(logit) - *likeliest) / sampling.temperature));
  }
  cut(weights, sampling);
  double total = 0;
  for (const double weight : weights) total += weight;
  double left = uniform * total;
  std::int32_t last = 0;  // where rounding leaves a little over
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (weights[i] > 0) last = static_cast<std::int32_t>(i);
    if (left < 0) return last;
  }
  return last;
}

double uniform_number(std::uint64_t seed, std::int64_t k) {
  std::uint64_t z = seed * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(k + 1) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

}  // namespace train_gpt
