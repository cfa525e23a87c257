// Parameter versions of a schedule without a flush (pipeline/schedule/flushless.h). Version k is the initial parameters
// after k updates. U(t), the update by the gradients of step t, turns version t into version t+1; the actions of step t
// work with version max(0, t-1).
//
// A rank holds two buffers of parameters, and version k lives in buffer k mod 2: U(t) overwrites version t-1, so the
// rank must have ended step t. It needs the gradient norm of step t, so all ranks must have ended it. And it has to
// come before the rank's first action of step t+2.
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

int micro_batches_of_step(const Schedule& schedule);  // m
int step_of(const Schedule& schedule, const Action& action);
int version_of_step(int step);

// [step]: how many actions of the rank's list come before its U(step): as many as possible, that is all before its
// first action of step + 2. The last two updates come at the end of the list.
std::vector<std::size_t> update_positions(const Schedule& schedule, int rank);

// Throws std::invalid_argument where an action needs a version that does not exist yet, or whose buffer an update would
// overwrite too early, or where a step would add to gradients that still wait for their update (two buffers, too). For
// schedules with steps > 1 whose lists are complete and ordered.
void check_versions(const Schedule& schedule);

// The number of pairs of one forward and one backward that rank 0 runs between its last backward of a step (the last of
// all ranks) and its first forward that needs that step's update. It follows from the lists alone. Norm, sums over
// replicas and update are hidden if they take no longer than these pairs.
int update_slack(const Schedule& schedule);

// The step that each rank repeats: from the middle of `schedule`, its list after the last backward of one step up to
// the last backward of the next. Micro-batches 0 .. m-1 are those of the step, m .. 2m-1 those of the next, some of
// whose forwards run ahead. For drawing, measuring and running, not for check_schedule() or simulate().
Schedule window_of(const Schedule& schedule);
// How many actions of such a window come before the update of the step before it.
std::size_t update_position(const Schedule& window, int rank);

// The steps between fill and drain.
struct SteadyState {
  double period = 0;  // milliseconds per step
  double bubble = 0;  // 1 - busy / period, over all ranks
};
// Needs a simulation with intervals, of a schedule of at least 6 steps.
SteadyState steady_state(const Schedule& schedule, const Simulation& simulation);

// Simulates one step: simulate(), or for a schedule without a flush its window, with the period as makespan and the
// bubble of the middle steps. (The lower bound is then the busiest rank; channels are those of all steps.)
Simulation simulate_step(const Schedule& schedule, const StageCosts& costs, SimulateOptions options = {});

}  // namespace train_gpt
