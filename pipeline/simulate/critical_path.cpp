// The chain of actions that makes the makespan: shorten any of them and the step gets faster, until another chain is as
// long.
#include <algorithm>
#include <cstddef>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/parts.h"

namespace train_gpt {
namespace {

constexpr int kNowhere = -1;

class Finder {
 public:
  Finder(const Schedule& schedule, const StageCosts& costs, const std::vector<std::vector<Interval>>& intervals)
      : schedule_(schedule), stages_(schedule.placement.stages), costs_(costs), intervals_(intervals) {
    forward_.assign(stages_.size() * schedule.micro_batches, kNowhere);
    gradient_.assign(forward_.size(), kNowhere);
    for (const std::vector<Action>& list : schedule.lists) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].op == Op::backward_weight) continue;
        (list[i].op == Op::forward ? forward_ : gradient_)[cell(list[i].stage, list[i].micro_batch)] =
            static_cast<int>(i);
      }
    }
  }

  std::vector<ActionPosition> operator()() const {
    std::vector<ActionPosition> path;
    for (ActionPosition at = last_to_end(); at.rank != kNowhere; at = before(at)) path.push_back(at);
    std::reverse(path.begin(), path.end());
    return path;
  }

 private:
  std::size_t cell(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * schedule_.micro_batches + micro_batch;
  }

  const Interval& interval(ActionPosition at) const { return intervals_[at.rank][at.position]; }

  ActionPosition last_to_end() const {
    ActionPosition last{kNowhere, 0};
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const ActionPosition end{rank, static_cast<int>(schedule_.actions(rank).size()) - 1};
      if (end.position >= 0 && (last.rank == kNowhere || interval(end).end > interval(last).end)) last = end;
    }
    return last;
  }

  // The action on another rank whose output this one takes, or none.
  ActionPosition sender(ActionPosition at) const {
    const Action& action = schedule_.actions(at.rank)[at.position];
    if (action.op == Op::backward_weight) return {kNowhere, 0};
    const bool forward = action.op == Op::forward;
    const int from = forward ? stages_[action.stage].previous : stages_[action.stage].next;
    if (from < 0 || stages_[from].rank == at.rank) return {kNowhere, 0};
    return {stages_[from].rank, (forward ? forward_ : gradient_)[cell(from, action.micro_batch)]};
  }

  ActionPosition before(ActionPosition at) const {
    // The parts of a pair that runs as one start together: it waits for the inputs of both, after what precedes both.
    const std::vector<Action>& list = schedule_.actions(at.rank);
    const auto joined = [&](int first) {
      return !costs_.fused.empty() && first >= 0 && first + 1 < static_cast<int>(list.size()) &&
             list[first].fused_with_next;
    };
    const int first = joined(at.position - 1) ? at.position - 1 : at.position;
    const int last = joined(first) ? first + 1 : first;
    if (first > 0 && intervals_[at.rank][first - 1].end == interval(at).start) return {at.rank, first - 1};
    ActionPosition latest{kNowhere, 0};
    for (int position = first; position <= last; ++position) {
      const ActionPosition candidate = sender({at.rank, position});
      if (candidate.rank == kNowhere) continue;
      if (latest.rank == kNowhere || interval(candidate).end > interval(latest).end) latest = candidate;
    }
    return latest;
  }

  const Schedule& schedule_;
  const std::vector<Placement::VirtualStage>& stages_;
  const StageCosts& costs_;
  const std::vector<std::vector<Interval>>& intervals_;
  std::vector<int> forward_, gradient_;  // [stage][micro-batch]: position in the list of the rank that runs it
};

}  // namespace

std::vector<ActionPosition> critical_path(const Schedule& schedule, const StageCosts& costs,
                                          const std::vector<std::vector<Interval>>& intervals) {
  return Finder(schedule, costs, intervals)();
}

}  // namespace train_gpt
