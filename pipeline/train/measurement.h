// Measurements of a step: when each rank worked and waited, and the bubble that follows, in both measures that papers
// use.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "pipeline/train/executor.h"

namespace train_gpt {

// Milliseconds on a clock that the ranks of a host share.
struct RankTimes {
  double first_start = 0;  // of the first action
  double last_end = 0;     // of the last action of the list
  double busy = 0;         // sum over actions

  static constexpr std::size_t kNumbers = 3;
  void write(std::span<double> numbers) const;  // kNumbers of them
  static RankTimes read(std::span<const double> numbers);
};

// `clock_ms`: how far this rank's clock is ahead of rank 0's.
RankTimes rank_times(Device& device, std::span<const ActionMarks> marks, double clock_ms);

struct StepBubble {
  double makespan = 0;     // ms, from the first start to the last end over all ranks
  double bubble = 0;       // 1 - busy / (p * makespan)
  double bubble_span = 0;  // 1 - ideal / span: ideal = largest busy time, span = largest (last end - first start)
};
StepBubble step_bubble(std::span<const RankTimes> ranks);
// Without a flush, where ranks run a step at different times: the makespan is the mean of the ranks' own.
StepBubble window_bubble(std::span<const RankTimes> ranks);

}  // namespace train_gpt
