#include "pipeline/simulate/versions.h"

#include <algorithm>
#include <stdexcept>

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
                         std::to_string(newest_) + " come behind it");
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

SteadyState steady_state(const Schedule& schedule, const Simulation& simulation) {
  const int first = schedule.steps / 2 - 1, last = schedule.steps - 2;
  if (last <= first) throw std::logic_error("too few steps for a steady state");
  double busy = 0, window = 0;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::vector<Action>& list = schedule.actions(rank);
    const std::vector<Interval>& intervals = simulation.intervals[static_cast<std::size_t>(rank)];
    const auto end_of = [&](int step) {
      std::size_t at = 0;
      for (std::size_t i = 0; i < list.size(); ++i)
        if (is_backward(list[i]) && step_of(schedule, list[i]) == step) at = i;
      return at;
    };
    const std::size_t from = end_of(first), to = end_of(last);
    window += intervals[to].end - intervals[from].end;
    for (std::size_t i = from + 1; i <= to; ++i) busy += intervals[i].end - intervals[i].start;
  }
  return {.period = window / schedule.ranks / (last - first), .bubble = std::max(0.0, 1 - busy / window)};
}

}  // namespace train_gpt
