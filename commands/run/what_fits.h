// Alternatives for a run whose plan is refused for lack of memory.
#pragma once

#include <string>

#include "pipeline/planner/choose.h"

namespace train_gpt {

// Looks for a change that makes the plan fit the request's memory limit: recomputation, another schedule, both, then
// with smaller micro-batches, then with more ranks. Returns text that follows a refusal: ". These fit: --recompute auto
// (1.1 GiB)", or that nothing was found.
std::string what_fits(const ChoiceRequest& refused);

}  // namespace train_gpt
