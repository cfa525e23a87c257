// Sudden rises of loss or gradient norm, by how many standard deviations they are away from the steps before.
#pragma once

#include <deque>
#include <optional>

namespace train_gpt {

class SpikeDetector {
 public:
  static constexpr std::size_t kWindow = 100;  // steps that a new one is compared with
  static constexpr std::size_t kLeast = 20;    // fewer say nothing
  static constexpr double kSpike = 6;          // standard deviations above the mean

  struct Scores {
    std::optional<double> loss;  // z = (x - mean) / standard deviation; nothing: too few steps so far
    std::optional<double> norm;
    bool spike = false;
  };
  // Spikes do not count as usual steps, unless they go on for kLeast steps: then they are the usual.
  Scores add(double loss, double norm);

 private:
  std::deque<double> losses_, norms_;
  std::size_t in_a_row_ = 0;
};

}  // namespace train_gpt
