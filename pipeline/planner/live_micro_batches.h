// How many micro-batches a schedule keeps alive, for counting their memory.
#pragma once

#include <vector>

#include "pipeline/schedule/schedule.h"

namespace train_gpt {

// The most at once in each model stage, on any rank that holds it, by the lifetimes of model/stage.h.
struct LiveMicroBatches {
  std::vector<int> forward_to_input, forward_to_weight, input_to_weight;
};
LiveMicroBatches live_micro_batches(const Schedule& schedule);

}  // namespace train_gpt
