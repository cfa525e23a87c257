// The memory lines of a plan: what is allocated, in bytes.
#pragma once

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

// The name of a pool's line: "activations F..I" and so on, with the slots and their size.
std::string pool_name(const Pool& pool);

// Fills plan.memory from everything else in the plan.
void add_memory_lines(const PlanRequest& request, RankPlan& plan);

// Bytes of the rank that needs most.
std::int64_t largest_rank(const Plan& plan);

// "1.5 GiB", "412 MiB", "900 B".
std::string format_bytes(std::int64_t bytes);

}  // namespace train_gpt
