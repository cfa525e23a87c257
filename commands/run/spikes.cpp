#include "commands/run/spikes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace train_gpt {
namespace {

std::optional<double> score(const std::deque<double>& before, double value) {
  if (before.size() < SpikeDetector::kLeast) return std::nullopt;
  const auto n = static_cast<double>(before.size());
  const double mean = std::accumulate(before.begin(), before.end(), 0.0) / n;
  double squares = 0;
  for (const double one : before) squares += (one - mean) * (one - mean);
  // If the values hardly differ, any change would be a spike.
  const double deviation = std::max(std::sqrt(squares / n), 1e-3 * std::abs(mean));
  return deviation > 0 ? (value - mean) / deviation : 0.0;
}

void keep(std::deque<double>& values, double value) {
  values.push_back(value);
  if (values.size() > SpikeDetector::kWindow) values.pop_front();
}

}  // namespace

SpikeDetector::Scores SpikeDetector::add(double loss, double norm) {
  if (!std::isfinite(loss) || !std::isfinite(norm)) return {};
  Scores scores{.loss = score(losses_, loss), .norm = score(norms_, norm)};
  scores.spike = scores.loss.value_or(0) > kSpike || scores.norm.value_or(0) > kSpike;
  in_a_row_ = scores.spike ? in_a_row_ + 1 : 0;
  if (in_a_row_ >= kLeast) {
    losses_.clear();
    norms_.clear();
  }
  if (!scores.spike || in_a_row_ >= kLeast) {
    keep(losses_, loss);
    keep(norms_, norm);
  }
  return scores;
}

}  // namespace train_gpt
