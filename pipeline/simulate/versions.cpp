#include "pipeline/simulate/versions.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace train_gpt {
namespace {

bool is_backward(const Action& action) { return action.op == Op::backward || action.op == Op::backward_weight; }

// Walks a rank's list with its updates where they have to be.
class RankVersions {
 public:
  RankVersions(const Schedule& schedule, int rank)
      : schedule_(schedule), rank_(rank), left_(static_cast<std::size_t>(schedule.steps)) {
    for (const Action& action : schedule.actions(rank)) left_[step(action)] += is_backward(action) ? 1 : 0;
  }

  void run(const Action& action) {
    while (newest_ < version_of_step(step_of(schedule_, action))) update(action);
    if (is_backward(action)) --left_[step(action)];
  }

 private:
  std::size_t step(const Action& action) const { return static_cast<std::size_t>(step_of(schedule_, action)); }

  // U(newest), after which nothing may work with the version before: what does is of step `newest`.
  void update(const Action& before) {
    if (left_[static_cast<std::size_t>(newest_)] > 0) {
      refuse(before, "needs version " + std::to_string(newest_ + 1) + " of the parameters, but " +
                         std::to_string(left_[static_cast<std::size_t>(newest_)]) + " backwards of step " +
                         std::to_string(newest_) + " come after it");
    }
    ++newest_;
  }

  [[noreturn]] void refuse(const Action& action, const std::string& why) const {
    throw std::invalid_argument("schedule " + schedule_.name + ": rank " + std::to_string(rank_) + " runs " +
                                to_string(action) + ", which " + why);
  }

  const Schedule& schedule_;
  int rank_;
  std::vector<int> left_;  // [step]: backwards that have not run
  int newest_ = 0;         // version
};

// Actions of a rank's list up to its last backward of a step.
std::size_t end_of_step(const Schedule& schedule, int rank, int step) {
  const std::vector<Action>& list = schedule.actions(rank);
  const auto last = std::find_if(list.rbegin(), list.rend(),
                                 [&](const Action& one) { return is_backward(one) && step_of(schedule, one) == step; });
  return static_cast<std::size_t>(list.rend() - last);
}

// The step whose window stands for all.
int middle_step(const Schedule& schedule) { return schedule.steps / 2; }

}  // namespace

int micro_batches_of_step(const Schedule& schedule) { return schedule.micro_batches / schedule.steps; }

int step_of(const Schedule& schedule, const Action& action) {
  return action.micro_batch / micro_batches_of_step(schedule);
}

int version_of_step(int step) { return std::max(0, step - 1); }

std::vector<std::size_t> update_positions(const Schedule& schedule, int rank) {
  const std::vector<Action>& list = schedule.actions(rank);
  std::vector<std::size_t> positions;
  for (int step = 0; step < schedule.steps; ++step) {
    const auto first =
        std::ranges::find_if(list, [&](const Action& one) { return step_of(schedule, one) >= step + 2; });
    positions.push_back(static_cast<std::size_t>(first - list.begin()));
  }
  return positions;
}

// Gradients: those of step t go where those of step t-2 were, and U(t-2) precedes the first action of step t, or that
// action would lack its version.
void check_versions(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    RankVersions versions(schedule, rank);
    for (const Action& action : schedule.actions(rank)) versions.run(action);
  }
}

int update_slack(const Schedule& schedule) {
  const std::vector<Action>& list = schedule.actions(0);
  const auto last = std::find_if(list.rbegin(), list.rend(),
                                 [&](const Action& one) { return is_backward(one) && step_of(schedule, one) == 0; });
  const auto end = static_cast<std::size_t>(list.rend() - last);
  return static_cast<int>((update_positions(schedule, 0).front() - end) / 2);
}

Schedule window_of(const Schedule& schedule) {
  const int m = micro_batches_of_step(schedule), step = middle_step(schedule);
  Schedule window(Placement::loop(schedule.ranks, schedule.chunks, 2 * m), 2 * m);
  window.name = schedule.name;
  window.steps = 2;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::vector<Action>& list = schedule.actions(rank);
    for (std::size_t i = end_of_step(schedule, rank, step - 1); i < end_of_step(schedule, rank, step); ++i) {
      Action action = list[i];
      action.micro_batch -= step * m;
      window.lists[static_cast<std::size_t>(rank)].push_back(action);
    }
  }
  return window;
}

std::size_t update_position(const Schedule& window, int rank) {
  const std::vector<Action>& list = window.actions(rank);
  const auto first = std::ranges::find_if(list, [&](const Action& one) { return step_of(window, one) == 1; });
  return static_cast<std::size_t>(first - list.begin());
}

SteadyState steady_state(const Schedule& schedule, const Simulation& simulation) {
  const int first = schedule.steps / 2 - 1, last = schedule.steps - 2;
  if (last <= first) throw std::logic_error("too few steps for a steady state");
  double busy = 0, window = 0;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::vector<Interval>& intervals = simulation.intervals[static_cast<std::size_t>(rank)];
    const std::size_t from = end_of_step(schedule, rank, first) - 1, to = end_of_step(schedule, rank, last) - 1;
    window += intervals[to].end - intervals[from].end;
    for (std::size_t i = from + 1; i <= to; ++i) busy += intervals[i].end - intervals[i].start;
  }
  return {.period = window / schedule.ranks / (last - first), .bubble = std::max(0.0, 1 - busy / window)};
}

Simulation simulate_step(const Schedule& schedule, const StageCosts& costs, SimulateOptions options) {
  if (schedule.steps == 1) return simulate(schedule, costs, options);
  const bool keeps_intervals = std::exchange(options.intervals, true);
  Simulation result = simulate(schedule, costs, options);
  const SteadyState steady = steady_state(schedule, result);
  double zero = result.makespan;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::vector<Interval>& all = result.intervals[r];
    const std::size_t from = end_of_step(schedule, rank, middle_step(schedule) - 1);
    const std::size_t to = end_of_step(schedule, rank, middle_step(schedule));
    all = {all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(to)};
    result.busy[r] = 0;
    for (const Interval& one : all) result.busy[r] += one.end - one.start;
    zero = std::min(zero, all.front().start);
  }
  for (std::size_t r = 0; r < result.intervals.size(); ++r) {
    for (Interval& one : result.intervals[r]) one = {one.start - zero, one.end - zero};
    result.first_start[r] = result.intervals[r].front().start;
    result.last_end[r] = result.intervals[r].back().end;
  }
  result.ideal = result.lower_bound = *std::ranges::max_element(result.busy);
  result.makespan = result.span = steady.period;
  result.bubble = steady.bubble;
  result.bubble_span = steady.period > 0 ? std::max(0.0, 1 - result.ideal / steady.period) : 0;
  result.messages /= schedule.steps;
  result.bytes /= schedule.steps;
  result.critical_path.clear();
  if (!keeps_intervals) result.intervals = {};
  return result;
}

}  // namespace train_gpt
