// Sudden rises of loss or gradient norm, in standard deviations from the steps before.
#pragma once

#include <deque>
#include <optional>

namespace train_gpt {

class SpikeDetector {
 public:
  static constexpr std::size_t kWindow = 100;  // how many earlier steps a new one is compared with
  static constexpr std::size_t kLeast = 20;    // with fewer there is no score
  static constexpr double kSpike = 6;          // standard deviations above the mean

  struct Scores {
    std::optional<double> loss;  // z = (x - mean) / standard deviation; empty: too few steps so far
    std::optional<double> norm;
    bool spike = false;
  };
  // Spikes do not count as usual steps, unless they last for kLeast steps.
  Scores add(double loss, double norm);

 private:
  std::deque<double> losses_, norms_;
  std::size_t in_a_row_ = 0;
};

}  // namespace train_gpt
