// Measured steps of all ranks, gathered on rank 0, and the pictures made from them.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/draw/timeline.h"
#include "pipeline/measure/step_records.h"
#include "pipeline/plan/execution_plan.h"
#include "pipeline/train/groups.h"

namespace train_gpt {

// The measured times of one action, in milliseconds on the clock of the host.
struct MeasuredAction {
  double wait_begin = 0;
  double begin = 0;
  double end = 0;
};

// One R or U: between `issued` and `begin` it runs beside actions of the list, or (U) waits for the gradient norm.
struct MeasuredLowered {
  char letter = 'R';
  double issued = 0;
  double begin = 0;
  double end = 0;
};

struct MeasuredRank {
  std::vector<MeasuredAction> actions;   // parallel to the rank's list
  std::vector<MeasuredLowered> lowered;  // parallel to lower(plan, rank)
};

struct MeasuredStep {
  std::int64_t step = 0;
  std::vector<MeasuredRank> ranks;  // of one pipeline

  double first_start() const;  // of all actions of all ranks, milliseconds on the clock of the host
  double last_end() const;
};

// The steps in the records of every rank of this pipeline, in order; only its rank 0 gets them. Collective over the
// pipeline.
std::vector<MeasuredStep> gather_steps(const Groups& groups, const Plan& plan, const StepRecords& records);

// The step whose makespan is the median: a usual step, without disturbances. `steps` is not empty.
const MeasuredStep& median_step(const std::vector<MeasuredStep>& steps);

// A measured step in the form of a simulated one: intervals from the first action's start, busy times, makespan,
// bubbles; memory and messages are those of `predicted`. So pictures and tables need no second kind of input.
Simulation as_simulation(const MeasuredStep& step, const Simulation& predicted);

// Its picture: the actions, and R and U after them.
Timeline measured_timeline(const Schedule& schedule, const MeasuredStep& step, const Simulation& predicted);

}  // namespace train_gpt
