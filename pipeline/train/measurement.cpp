#include "pipeline/train/measurement.h"

#include <algorithm>

namespace train_gpt {

void RankTimes::write(std::span<double> numbers) const {
  numbers[0] = first_start;
  numbers[1] = last_end;
  numbers[2] = busy;
}

RankTimes RankTimes::read(std::span<const double> numbers) {
  return {.first_start = numbers[0], .last_end = numbers[1], .busy = numbers[2]};
}

RankTimes rank_times(Device& device, std::span<const ActionMarks> marks, double clock_ms) {
  RankTimes times;
  if (marks.empty()) return times;
  times.first_start = device.time_ms(marks.front().begin) - clock_ms;
  times.last_end = device.time_ms(marks.back().end) - clock_ms;
  for (const ActionMarks& action : marks) times.busy += device.time_ms(action.end) - device.time_ms(action.begin);
  return times;
}

StepBubble step_bubble(std::span<const RankTimes> ranks) {
  StepBubble step;
  if (ranks.empty()) return step;
  double first = ranks[0].first_start;
  double last = ranks[0].last_end;
  double busy = 0;
  double ideal = 0;
  double span = 0;
  for (const RankTimes& rank : ranks) {
    first = std::min(first, rank.first_start);
    last = std::max(last, rank.last_end);
    busy += rank.busy;
    ideal = std::max(ideal, rank.busy);
    span = std::max(span, rank.last_end - rank.first_start);
  }
  step.makespan = last - first;
  if (step.makespan > 0) step.bubble = 1 - busy / (static_cast<double>(ranks.size()) * step.makespan);
  if (span > 0) step.bubble_span = 1 - ideal / span;
  return step;
}

StepBubble window_bubble(std::span<const RankTimes> ranks) {
  StepBubble step;
  double busy = 0, ideal = 0, windows = 0, longest = 0;
  for (const RankTimes& rank : ranks) {
    const double window = rank.last_end - rank.first_start;
    busy += rank.busy;
    ideal = std::max(ideal, rank.busy);
    windows += window;
    longest = std::max(longest, window);
  }
  if (windows <= 0) return step;
  step.makespan = windows / static_cast<double>(ranks.size());
  step.bubble = 1 - busy / windows;
  step.bubble_span = 1 - ideal / longest;
  return step;
}

}  // namespace train_gpt
