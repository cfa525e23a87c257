// The progress of a run: time, tokens and epochs after each of its steps.
#pragma once

#include <cstdint>
#include <optional>

namespace train_gpt {

struct Progress {
  double elapsed_s = 0;          // since this process began its first step
  double left_s = 0;             // until the last step, at the pace since the first one ended
  double tokens_per_s_mean = 0;  // since the first step began, validation and checkpoints included
  std::optional<double> epoch;   // passes over the training tokens, those before a resume included
};

class ProgressMeter {
 public:
  // The steps first .. last - 1 are to be taken; training_tokens: of one pass over the data, 0 if there are none.
  ProgressMeter(std::int64_t first, std::int64_t last, std::int64_t tokens_per_step, std::int64_t training_tokens)
      : first_(first), last_(last), tokens_per_step_(tokens_per_step), training_tokens_(training_tokens) {}

  // Called once, when the first step begins. now: seconds, on any clock.
  void begin(double now) { begin_ = now; }
  // Called after each `step`, once and in order.
  Progress after(std::int64_t step, double now);

 private:
  std::int64_t first_, last_, tokens_per_step_, training_tokens_;
  double begin_ = 0;
  std::optional<double> first_end_;
};

}  // namespace train_gpt
