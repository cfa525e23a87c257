#include "pipeline/planner/live_micro_batches.h"

#include <algorithm>

namespace train_gpt {

LiveMicroBatches live_micro_batches(const Schedule& schedule) {
  const auto depth = static_cast<std::size_t>(schedule.placement.depth());
  LiveMicroBatches most{std::vector<int>(depth, 0), std::vector<int>(depth, 0), std::vector<int>(depth, 0)};
  struct Count {
    int to_input = 0, to_weight = 0, pending = 0;
  };
  std::vector<Count> now(schedule.placement.stages.size());
  for (const std::vector<Action>& list : schedule.lists) {
    for (const Action& action : list) {
      const auto s = static_cast<std::size_t>(action.stage);
      const auto position = static_cast<std::size_t>(schedule.placement.stages[s].model_stage);
      Count& count = now[s];
      if (action.op == Op::forward) {
        ++count.to_input;
        ++count.to_weight;
      } else if (action.op != Op::backward_weight) {
        ++count.pending;
      }
      most.forward_to_input[position] = std::max(most.forward_to_input[position], count.to_input);
      most.forward_to_weight[position] = std::max(most.forward_to_weight[position], count.to_weight);
      most.input_to_weight[position] = std::max(most.input_to_weight[position], count.pending);
      if (action.op == Op::backward || action.op == Op::backward_input) --count.to_input;
      if (action.op == Op::backward || action.op == Op::backward_weight) {
        --count.to_weight;
        --count.pending;
      }
    }
  }
  return most;
}

}  // namespace train_gpt
