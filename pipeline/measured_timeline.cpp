#include "pipeline/measured_timeline.h"

#include <algorithm>
#include <cstring>

namespace train_gpt {

MeasuredStep gather_step(Device& device, Groups& groups, std::span<const ActionMarks> marks) {
  std::vector<MeasuredAction> mine;
  for (const ActionMarks& m : marks) {
    mine.push_back({device.time_ms(m.wait_begin), device.time_ms(m.begin), device.time_ms(m.end)});
  }
  const auto parcels = groups.pipeline->gather_host(
      {reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(MeasuredAction)}, 0);
  MeasuredStep step;
  for (const std::vector<char>& parcel : parcels) {
    step.emplace_back(parcel.size() / sizeof(MeasuredAction));
    if (!parcel.empty()) std::memcpy(step.back().data(), parcel.data(), parcel.size());
  }
  return step;
}

Simulation as_simulation(const MeasuredStep& step, const Simulation& predicted) {
  Simulation measured = predicted;
  std::vector<RankTimes> times;
  for (const std::vector<MeasuredAction>& rank : step) {
    RankTimes& t = times.emplace_back();
    if (rank.empty()) continue;
    t = {.first_start = rank.front().begin, .last_end = rank.back().end, .busy = 0, .post_flush = 0};
    for (const MeasuredAction& action : rank) t.busy += action.end - action.begin;
  }
  const double zero = std::min_element(times.begin(), times.end(), [](const RankTimes& a, const RankTimes& b) {
                        return a.first_start < b.first_start;
                      })->first_start;
  const StepBubble bubble = step_bubble(times);
  measured.makespan = bubble.makespan;
  measured.bubble = bubble.bubble;
  measured.bubble_span = bubble.bubble_span;
  measured.span = 0;
  measured.ideal = 0;
  measured.intervals.assign(step.size(), {});
  for (std::size_t r = 0; r < step.size(); ++r) {
    measured.busy[r] = times[r].busy;
    measured.first_start[r] = times[r].first_start - zero;
    measured.last_end[r] = times[r].last_end - zero;
    measured.span = std::max(measured.span, times[r].last_end - times[r].first_start);
    measured.ideal = std::max(measured.ideal, times[r].busy);
    for (const MeasuredAction& a : step[r]) measured.intervals[r].push_back({a.begin - zero, a.end - zero});
  }
  return measured;
}

}  // namespace train_gpt
