// Runs the lists of a schedule with given durations on the timed device: ranks are threads of this process, each with
// the executor, buffers and channels of a training.
#pragma once

#include "pipeline/plan/execution_plan.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// Milliseconds from the first action to the last, the median of `times` runs. `links`: the times of messages between
// stages; the time that a message takes here anyway is measured first and subtracted. The plan computes nothing
// (PlanRequest::computes).
double replay_ms(const Plan& plan, const ActionDurations& durations, const StageCosts& links, int times);

}  // namespace train_gpt
