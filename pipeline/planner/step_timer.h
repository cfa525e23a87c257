// The length of a step of one schedule under many different costs, as cuts of a model are compared: the lists are
// brought into one order in which every action comes after all that it waits for. That order does not depend on costs,
// so that each further evaluation is a single pass over flat arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

class StepTimer {
 public:
  // Keeps a reference to the schedule. Lists that block each other are refused by the first evaluation.
  explicit StepTimer(const Schedule& schedule);

  // simulate_step(schedule, costs).makespan, to the last bit. Where it takes more than one pass (pairs that have a
  // cost, sends that slow computation down, several steps without a flush) it is simulated.
  double operator()(const StageCosts& costs);

 private:
  static constexpr std::int32_t kNone = -1;
  struct Step {
    std::int32_t rank = 0;
    std::int32_t duration = 0;     // index into durations_
    std::int32_t input = kNone;    // the step whose message it waits for
    std::int32_t hop = kNone;      // index into latency_ and transfer_; none: its result stays on the rank
    std::int32_t channel = kNone;  // that its message takes
  };

  void put_in_order();
  void look_up(const StageCosts& costs);

  const Schedule& schedule_;
  bool has_pairs_ = false;
  std::size_t channels_ = 0;
  std::vector<Step> steps_;         // empty: the lists block each other
  std::vector<std::int32_t> hops_;  // those that a step takes
  // Of the evaluation under way.
  std::vector<double> durations_;           // [virtual stage][Op]
  std::vector<double> latency_, transfer_;  // [virtual stage][F or not]
  std::vector<double> arrival_;             // [step]: when its result is where it is taken
  std::vector<double> rank_free_, channel_free_;
};

}  // namespace train_gpt
