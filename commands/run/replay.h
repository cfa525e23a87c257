// Runs the lists of a schedule with durations that are given, on the timed device: ranks are threads of this process,
// each with the executor, the buffers and the channels that it would train with.
#pragma once

#include "pipeline/plan/execution_plan.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// Milliseconds from the first action to the last, the median of so many times. `links`: what the messages between its
// stages take, of which what they take here anyway is measured first and left out. The plan computes nothing
// (PlanRequest::computes).
double replay_ms(const Plan& plan, const ActionDurations& durations, const StageCosts& links, int times);

}  // namespace train_gpt
