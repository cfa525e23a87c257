// The copies of parameters and moments in the host's memory from which checkpoints are written beside training: which
// ranks have one, and whether there is room for them. For `train` and `plan`.
#pragma once

#include <string>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

// Gives the copy of its state to each rank of the plan that writes checkpoints.
void add_copies(Plan& plan);

// True if every rank has room for plan and copy within `limit` bytes (0: no limit). Never for a schedule without a
// flush, whose checkpoints hold two sets of parameters.
bool copies_fit(const Plan& plan, std::int64_t limit);

// A line for people: there are no copies.
std::string without_copies(const Plan& plan);

}  // namespace train_gpt
