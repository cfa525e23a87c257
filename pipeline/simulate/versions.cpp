#include "pipeline/simulate/versions.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "pipeline/schedule/flushless.h"

namespace train_gpt {
namespace {

bool is_backward(const Action& action) { return action.op == Op::backward || action.op == Op::backward_weight; }

[[noreturn]] void refuse(const Schedule& schedule, int rank, const Action& action, const std::string& why) {
  throw std::invalid_argument("schedule " + schedule.name + ": rank " + std::to_string(rank) + " runs " +
                              to_string(action) + ", " + why);
}

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
    train_gpt::refuse(schedule_, rank_, action, "which " + why);
  }

  const Schedule& schedule_;
  int rank_;
  std::vector<int> left_;  // [step]: backwards that have not run
  int newest_ = 0;         // version
};

// Of pipedream. A backward may free the oldest version because it is in its turn.
void check_stash(const Schedule& schedule, int rank) {
  int backwards = 0;  // and updates
  for (const Action& action : schedule.actions(rank)) {
    const int version = version_of(schedule, action);
    if (version > backwards) {
      refuse(schedule, rank, action,
             "which needs version " + std::to_string(version) + " of the parameters, but only " +
                 std::to_string(backwards) + " backwards come before it");
    }
    if (action.op == Op::forward) continue;
    if (action.op != Op::backward || action.micro_batch != backwards) {
      refuse(schedule, rank, action,
             "but each micro-batch needs one whole backward in its turn, here " + std::to_string(backwards) + "B");
    }
    ++backwards;
  }
}

// Actions of a rank's list before its first one of a step.
std::size_t begin_of_step(const Schedule& schedule, int rank, int step) {
  const std::vector<Action>& list = schedule.actions(rank);
  const auto first = std::ranges::find_if(list, [&](const Action& one) { return step_of(schedule, one) == step; });
  return static_cast<std::size_t>(first - list.begin());
}

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

int version_of(const Schedule& schedule, const Action& action) {
  if (schedule.steps == 1) return -1;
  if (!stashes_weights(schedule.name)) return version_of_step(step_of(schedule, action));
  const int rank = schedule.placement.stages[static_cast<std::size_t>(action.stage)].rank;
  return std::max(0, action.micro_batch - older_versions(schedule, rank));
}

// Gradients: those of step t go where those of step t-2 were, and U(t-2) precedes the first action of step t, or that
// action would lack its version.
void check_versions(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    if (stashes_weights(schedule.name)) {
      check_stash(schedule, rank);
      continue;
    }
    RankVersions versions(schedule, rank);
    for (const Action& action : schedule.actions(rank)) versions.run(action);
  }
  if (!stashes_weights(schedule.name)) update_slack(schedule);
}

int update_slack(const Schedule& schedule) {
  if (schedule.placement.kind != Placement::Kind::loop || schedule.chunks != 1) {
    throw std::invalid_argument("schedule " + schedule.name + ": without a flush every rank has one stage, in order");
  }
  std::size_t least = schedule.actions(0).size();
  for (int step = 0; step + 2 < schedule.steps; ++step) {
    const std::size_t end = end_of_step(schedule, 0, step), begin = begin_of_step(schedule, 0, step + 2);
    const Action &last = schedule.actions(0)[end - 1], &first = schedule.actions(0)[begin];
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const std::vector<Action>& list = schedule.actions(rank);
      const Action& own_last = list[end_of_step(schedule, rank, step) - 1];
      const Action& own_first = list[begin_of_step(schedule, rank, step + 2)];
      if (own_last.micro_batch != last.micro_batch) {
        refuse(schedule, rank, own_last,
               "its last backward of step " + std::to_string(step) + ", and rank 0 ends with " + to_string(last) +
                   ": its gradients may come later than those of rank 0, and the update be waited for");
      }
      if (own_first.op != Op::forward || own_first.micro_batch != first.micro_batch) {
        refuse(schedule, rank, own_first,
               "its first action of step " + std::to_string(step + 2) + ", and rank 0 begins with " + to_string(first) +
                   ": it may need the update before rank 0 does, and wait for it");
      }
    }
    if (begin < end)
      refuse(schedule, 0, first, "before " + to_string(last) + ", the last backward of two steps before");
    least = std::min(least, (begin - end) / 2);
  }
  return static_cast<int>(least);
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
