#include "pipeline/measure/idle.h"

#include <stdexcept>

namespace train_gpt {
namespace {

// The mean of the values added.
struct Mean {
  double sum = 0;
  double count = 0;

  void add(double value) {
    sum += value;
    ++count;
  }
  double value() const { return count > 0 ? sum / count : 0; }
};

using StageMeans = std::array<std::vector<Mean>, 4>;  // [Op][virtual stage]

std::size_t index(Op op) { return static_cast<std::size_t>(op); }

void check_shape(const Schedule& schedule, const Simulation& measured) {
  const std::size_t ranks = schedule.lists.size();
  bool same = measured.intervals.size() == ranks && measured.busy.size() == ranks;
  for (std::size_t r = 0; same && r < ranks; ++r) same = measured.intervals[r].size() == schedule.lists[r].size();
  if (!same) {
    throw std::invalid_argument("the measured intervals are not one per action of the lists of " + schedule.name);
  }
}

ActionDurations measured_durations(const Simulation& measured) {
  ActionDurations durations;
  for (const std::vector<Interval>& rank : measured.intervals) {
    std::vector<double>& list = durations.emplace_back();
    for (const Interval& interval : rank) list.push_back(interval.end - interval.start);
  }
  return durations;
}

StageMeans means(const Schedule& schedule, const ActionDurations& durations) {
  StageMeans result;
  for (std::vector<Mean>& stages : result) stages.resize(schedule.placement.stages.size());
  for (std::size_t r = 0; r < durations.size(); ++r) {
    for (std::size_t i = 0; i < durations[r].size(); ++i) {
      const Action& action = schedule.lists[r][i];
      result[index(action.op)][static_cast<std::size_t>(action.stage)].add(durations[r][i]);
    }
  }
  return result;
}

// One value per action of the schedule: `duration(action)`.
template <typename Duration>
ActionDurations durations_by(const Schedule& schedule, const Duration& duration) {
  ActionDurations result;
  for (const std::vector<Action>& list : schedule.lists) {
    std::vector<double>& row = result.emplace_back();
    for (const Action& action : list) row.push_back(duration(action));
  }
  return result;
}

// Idle time per rank with these durations and free communication.
struct Idle {
  double makespan = 0;
  std::vector<double> ranks;
};

Idle idle_of(const Simulation& simulation) {
  Idle idle{.makespan = simulation.makespan, .ranks = {}};
  for (const double busy : simulation.busy) idle.ranks.push_back(simulation.makespan - busy);
  return idle;
}

Idle simulated_idle(const Schedule& schedule, const ActionDurations& durations) {
  const std::vector<double> none(schedule.placement.stages.size(), 0.0);  // the durations replace them
  StageCosts free;
  free.forward = free.input = free.weight = none;
  return idle_of(simulate(schedule, free, {.intervals = false, .channels = false, .durations = &durations}));
}

}  // namespace

std::array<std::vector<double>, 4> stage_means(const Schedule& schedule, const Simulation& measured) {
  check_shape(schedule, measured);
  const StageMeans all = means(schedule, measured_durations(measured));
  std::array<std::vector<double>, 4> values;
  for (std::size_t op = 0; op < all.size(); ++op) {
    for (const Mean& mean : all[op]) values[op].push_back(mean.value());
  }
  return values;
}

IdleTime explain_idle(const Schedule& schedule, const Simulation& measured) {
  check_shape(schedule, measured);
  const ActionDurations durations = measured_durations(measured);
  const StageMeans of_stage = means(schedule, durations);
  std::array<Mean, 4> of_operation;  // over stages, which count alike however often they run it
  for (std::size_t op = 0; op < of_stage.size(); ++op) {
    for (const Mean& mean : of_stage[op]) {
      if (mean.count > 0) of_operation[op].add(mean.value());
    }
  }
  const Idle equal = simulated_idle(
      schedule, durations_by(schedule, [&](const Action& action) { return of_operation[index(action.op)].value(); }));
  const Idle uneven =
      simulated_idle(schedule, durations_by(schedule, [&](const Action& action) {
                       return of_stage[index(action.op)][static_cast<std::size_t>(action.stage)].value();
                     }));
  const Idle jittering = simulated_idle(schedule, durations);
  const Idle actual = idle_of(measured);

  IdleTime result;
  result.makespan = {equal.makespan, uneven.makespan, jittering.makespan, actual.makespan};
  result.available = actual.makespan * static_cast<double>(schedule.lists.size());
  for (std::size_t r = 0; r < schedule.lists.size(); ++r) {
    const IdleParts parts{.schedule = equal.ranks[r],
                          .imbalance = uneven.ranks[r] - equal.ranks[r],
                          .jitter = jittering.ranks[r] - uneven.ranks[r],
                          .communication = actual.ranks[r] - jittering.ranks[r]};
    result.ranks.push_back(parts);
    result.all.schedule += parts.schedule;
    result.all.imbalance += parts.imbalance;
    result.all.jitter += parts.jitter;
    result.all.communication += parts.communication;
  }
  return result;
}

}  // namespace train_gpt
