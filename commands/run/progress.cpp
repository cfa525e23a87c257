#include "commands/run/progress.h"

namespace train_gpt {

// Once there are others, the first step, which touches memory for the first time, does not count for the pace.
Progress ProgressMeter::after(std::int64_t step, double now) {
  Progress progress;
  progress.elapsed_s = now - begin_;
  const auto taken = static_cast<double>(step + 1 - first_);
  const auto remaining = static_cast<double>(last_ - step - 1);
  if (progress.elapsed_s > 0) {
    progress.tokens_per_s_mean = taken * static_cast<double>(tokens_per_step_) / progress.elapsed_s;
  }
  const bool first = !first_end_;
  if (first) first_end_ = now;
  const double pace = first ? progress.elapsed_s / taken : (now - *first_end_) / (taken - 1);
  progress.left_s = remaining * pace;
  if (training_tokens_ > 0) {
    progress.epoch =
        static_cast<double>(step + 1) * static_cast<double>(tokens_per_step_) / static_cast<double>(training_tokens_);
  }
  return progress;
}

}  // namespace train_gpt
