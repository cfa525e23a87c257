#include "pipeline/measure/measured_timeline.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "pipeline/plan/lowering.h"
#include "pipeline/train/measurement.h"

namespace train_gpt {
namespace {

// One record of StepRecords::numbers().
MeasuredRank read_record(std::span<const double> record, std::size_t actions,
                         const std::vector<LoweredAction>& lowered) {
  MeasuredRank rank;
  std::size_t at = 1;
  for (std::size_t i = 0; i < actions; ++i, at += 3)
    rank.actions.push_back({record[at], record[at + 1], record[at + 2]});
  for (const LoweredAction& action : lowered) {
    rank.lowered.push_back({letter(action.kind), record[at], record[at + 1], record[at + 2]});
    at += 3;
  }
  return rank;
}

double makespan(const MeasuredStep& step) { return step.last_end() - step.first_start(); }

}  // namespace

double MeasuredStep::first_start() const {
  double first = std::numeric_limits<double>::infinity();
  for (const MeasuredRank& rank : ranks) {
    if (!rank.actions.empty()) first = std::min(first, rank.actions.front().begin);
  }
  return first;
}

double MeasuredStep::last_end() const {
  double last = -std::numeric_limits<double>::infinity();
  for (const MeasuredRank& rank : ranks) {
    if (!rank.actions.empty()) last = std::max(last, rank.actions.back().end);
  }
  return last;
}

std::vector<MeasuredStep> gather_steps(const Groups& groups, const Plan& plan, const StepRecords& records) {
  const std::span<const double> mine = records.numbers();
  const auto parcels = groups.pipeline->gather_host({reinterpret_cast<const char*>(mine.data()), mine.size_bytes()}, 0);
  std::vector<MeasuredStep> steps;
  for (std::size_t r = 0; r < parcels.size(); ++r) {
    const std::size_t actions = plan.ranks[r].actions.size();
    const std::vector<LoweredAction> lowered = lower(plan, static_cast<int>(r));
    const std::size_t size = StepRecords::record_size(actions, lowered.size());
    std::vector<double> numbers(parcels[r].size() / sizeof(double));
    if (!numbers.empty()) std::memcpy(numbers.data(), parcels[r].data(), parcels[r].size());
    steps.resize(numbers.size() / size);  // every rank has kept the same steps, in the same order
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const std::span<const double> record = std::span<const double>(numbers).subspan(s * size, size);
      steps[s].step = static_cast<std::int64_t>(record[0]);
      steps[s].ranks.push_back(read_record(record, actions, lowered));
    }
  }
  std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return steps;
}

const MeasuredStep& median_step(const std::vector<MeasuredStep>& steps) {
  if (steps.empty()) throw std::logic_error("no step was measured");
  std::vector<const MeasuredStep*> by_time;
  for (const MeasuredStep& step : steps) by_time.push_back(&step);
  const auto middle = by_time.begin() + static_cast<std::ptrdiff_t>(by_time.size() - 1) / 2;
  std::nth_element(by_time.begin(), middle, by_time.end(),
                   [](const auto* a, const auto* b) { return makespan(*a) < makespan(*b); });
  return **middle;
}

Simulation as_simulation(const MeasuredStep& step, const Simulation& predicted) {
  Simulation measured = predicted;
  std::vector<RankTimes> times;
  for (const MeasuredRank& rank : step.ranks) {
    RankTimes& t = times.emplace_back();
    if (rank.actions.empty()) continue;
    t = {.first_start = rank.actions.front().begin, .last_end = rank.actions.back().end, .busy = 0};
    for (const MeasuredAction& action : rank.actions) t.busy += action.end - action.begin;
  }
  const double zero = step.first_start();
  const StepBubble bubble = step_bubble(times);
  measured.makespan = bubble.makespan;
  measured.bubble = bubble.bubble;
  measured.bubble_span = bubble.bubble_span;
  measured.span = 0;
  measured.ideal = 0;
  measured.intervals.assign(step.ranks.size(), {});
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    measured.busy[r] = times[r].busy;
    measured.first_start[r] = times[r].first_start - zero;
    measured.last_end[r] = times[r].last_end - zero;
    measured.span = std::max(measured.span, times[r].last_end - times[r].first_start);
    measured.ideal = std::max(measured.ideal, times[r].busy);
    for (const MeasuredAction& a : step.ranks[r].actions) {
      measured.intervals[r].push_back({a.begin - zero, a.end - zero});
    }
  }
  return measured;
}

Timeline measured_timeline(const Schedule& schedule, const MeasuredStep& step, const Simulation& predicted) {
  Timeline result = timeline(schedule, as_simulation(step, predicted));
  const double zero = step.first_start();
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    for (const MeasuredLowered& it : step.ranks[r].lowered) {
      // A gathering of parameters may have ended before the first action.
      if (it.end >= zero)
        result.rows[r].push_back({.start = std::max(it.begin - zero, 0.0), .end = it.end - zero, .letter = it.letter});
    }
    std::stable_sort(result.rows[r].begin(), result.rows[r].end(),
                     [](const TimelineBar& a, const TimelineBar& b) { return a.start < b.start; });
  }
  return result;
}

}  // namespace train_gpt
