// The part of a step that may run before the gradient norm of the step before it is known (Zero Bubble paper, section
// 4: the optimizer step is taken on the assumption that nothing has to be clipped, and confirmed afterwards).
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

// Per rank, how many of the first actions of its training list may run ahead: forwards that write no gradient (those
// are needed until the step before is confirmed), and whose input comes from a forward that runs ahead too, so that all
// ranks can roll back together: exactly the messages that were sent ahead have to be thrown away.
std::vector<std::size_t> actions_ahead(const Plan& plan);

// The number of messages that a channel carries from those actions.
int messages_ahead(const Plan& plan, const std::vector<std::size_t>& ahead, int channel);

}  // namespace train_gpt
