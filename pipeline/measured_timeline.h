// Measured intervals of all ranks, brought together on rank 0, and the pictures made from them.
#pragma once

#include <vector>

#include "pipeline/draw_timeline.h"
#include "pipeline/groups.h"
#include "pipeline/measurement.h"
#include "pipeline/plan.h"

namespace train_gpt {

// One action as it was measured, in milliseconds on the clock of the host.
struct MeasuredAction {
  double wait_begin = 0;
  double begin = 0;
  double end = 0;
};

// [rank of the pipeline][position in its list], of replica 0; only rank 0 gets it. Collective over the pipeline.
using MeasuredStep = std::vector<std::vector<MeasuredAction>>;
MeasuredStep gather_step(Device& device, Groups& groups, std::span<const ActionMarks> marks);

// A measured step in the form of a simulated one: intervals from the first action's start, busy times, makespan,
// bubbles; memory and messages as `predicted` has them. Pictures and tables then need no second kind of input.
Simulation as_simulation(const MeasuredStep& step, const Simulation& predicted);

}  // namespace train_gpt
