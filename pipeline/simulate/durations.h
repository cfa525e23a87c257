// How long each action takes: the costs of its virtual stage, or what it took when it was measured.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// The length of `duration` if messages are sent during its first `sending` milliseconds and slow it down: work proceeds
// at 1 / (1 + slowdown) of its speed until they have left.
inline double slowed_by_sends(double duration, double sending, double slowdown) {
  if (sending <= 0.0 || slowdown <= 0.0) return duration;
  return duration + slowdown * std::min(duration, sending / (1.0 + slowdown));
}

class DurationTable {
 public:
  // Keeps references to all three. Throws std::invalid_argument if `measured` has not one value per action.
  DurationTable(const Schedule& schedule, const StageCosts& costs, const ActionDurations* measured);

  // Milliseconds of one action on its own.
  double operator()(int rank, std::size_t position) const {
    if (measured_ != nullptr) return (*measured_)[rank][position];
    const Action& action = schedule_.lists[rank][position];
    return by_op_[static_cast<std::size_t>(action.op)][action.stage];
  }

  // True if the actions at this position and the next run as one, because such a pair has a cost of its own.
  bool runs_as_pair(int rank, std::size_t position) const {
    return pairs_have_cost_ && schedule_.lists[rank][position].fused_with_next &&
           position + 1 < schedule_.lists[rank].size();
  }

  // See Costs; measured durations include it.
  double send_slowdown() const { return measured_ == nullptr ? costs_.send_slowdown : 0.0; }

  // Milliseconds of such a pair; if measured, of both parts together.
  double pair(int rank, std::size_t position) const;

 private:
  const Schedule& schedule_;
  const StageCosts& costs_;
  const ActionDurations* measured_;
  bool pairs_have_cost_;
  std::array<std::vector<double>, 4> by_op_;  // [Op][virtual stage]
};

}  // namespace train_gpt
