// The conditions that a request has to meet before it can be planned.
#pragma once

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

// Throws std::invalid_argument, naming the option, its value and what would be right: the partition has to fit the
// model and the placement, a row's length the model's positions, and the accumulation groups the micro-batches,
// replicas and directions.
void check_request(const PlanRequest& request);

}  // namespace train_gpt
