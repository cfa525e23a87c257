// Parameter versions of a schedule without a flush (pipeline/schedule/flushless.h). Version k is what k updates made of
// the first parameters. U(t), the update by the gradients of step t, makes version t+1 out of version t; the actions of
// step t work with version max(0, t-1).
//
// A rank holds two buffers of parameters, and version k lives in buffer k mod 2: U(t) overwrites version t-1, so the
// rank must be through with step t. It needs the gradient norm of step t, so all ranks must be. And it has to come
// before the rank's first action of step t+2.
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

int micro_batches_of_step(const Schedule& schedule);  // m
int step_of(const Schedule& schedule, const Action& action);
int version_of_step(int step);

// [step]: how many actions of the rank's list come before its U(step): as many as may be, that is all before its first
// action of step + 2. The last two updates come at the end of the list.
std::vector<std::size_t> update_positions(const Schedule& schedule, int rank);

// Throws std::invalid_argument where an action needs a version that does not exist yet, or whose buffer an update would
// overwrite too early, or a step would add to gradients that still wait for their update (two buffers, too). For
// schedules with steps > 1; complete and ordered lists.
void check_versions(const Schedule& schedule);

// Pairs of one forward and one backward that rank 0 runs between its last backward of a step, which is the last of all
// ranks, and its first forward that needs the update by that step: by the lists alone, whatever actions and messages
// cost. What the norm, sums over replicas and the update itself take is hidden if it fits into them.
int update_slack(const Schedule& schedule);

// A step as a rank runs it again and again: its list from after the last backward of one step to the last backward of
// the next, from the middle of `schedule`. Micro-batches 0 .. m-1 are those of the step, m .. 2m-1 of the one after it,
// some of whose forwards run ahead. For drawing, measuring and running, not for check_schedule() or simulate().
Schedule window_of(const Schedule& schedule);
// How many actions of such a window come before the update by the step before it.
std::size_t update_position(const Schedule& window, int rank);

// The steps between fill and drain.
struct SteadyState {
  double period = 0;  // milliseconds per step
  double bubble = 0;  // 1 - busy / period, over all ranks
};
// Needs a simulation with intervals, of a schedule of at least 6 steps.
SteadyState steady_state(const Schedule& schedule, const Simulation& simulation);

// One step: simulate(); of a schedule without a flush its window, with the period as makespan and the bubble of the
// steps in the middle. (Its lower bound is the busiest rank; channels stay those of all steps.)
Simulation simulate_step(const Schedule& schedule, const StageCosts& costs, SimulateOptions options = {});

}  // namespace train_gpt
