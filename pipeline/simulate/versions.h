// Parameter versions of a schedule without a flush (pipeline/schedule/flushless.h). Version k is what k updates made of
// the first parameters.
//
// 2bw: U(t), the update by the gradients of step t, makes version t+1 out of version t; the actions of step t work with
// version max(0, t-1). A rank holds two buffers of parameters, and version k lives in buffer k mod 2: U(t) overwrites
// version t-1, so the rank must be through with step t. It needs the gradient norm of step t, so all ranks must be. And
// it has to come before the rank's first action of step t+2.
//
// pipedream: U(i), after the backward of micro-batch i, makes version i+1 out of version i; with D = p-1-r (
// older_versions) the actions of micro-batch i work with version max(0, i-D). A rank holds D+1 buffers, and version k
// lives in buffer k mod (D+1): U(i) overwrites version i-D, whose last reader is the backward of i.
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

int micro_batches_of_step(const Schedule& schedule);  // m
int step_of(const Schedule& schedule, const Action& action);
int version_of_step(int step);
// Of the parameters that an action works with; -1: its schedule flushes.
int version_of(const Schedule& schedule, const Action& action);

// Throws std::invalid_argument where an action needs a version that does not exist yet, or whose buffer an update would
// overwrite too early, or a step would add to gradients that still wait for their update (two buffers, too), or where
// an update could hold up an action (update_slack). For schedules with steps > 1; complete and ordered lists.
void check_versions(const Schedule& schedule);

// 2bw: why nobody ever waits for the norm of the gradients, whatever actions and messages cost. Three facts about the
// lists, each of which is looked up for every step t:
//
//   1. The last backward of step t is the same micro-batch's on every rank. It reaches rank 0 last, since each rank has
//      the gradient that it begins with from the next one. So G(t) is complete when rank 0 ends it.
//   2. The first action of step t+2, which needs U(t), is on every rank the forward of one micro-batch. It begins on
//      rank 0, since each rank has its input from the one before.
//   3. On rank 0 the former comes before the latter.
//
// So the lists and messages alone put the end of G(t) on all ranks before the first action of step t+2 on any: waiting
// for it adds nothing. Between the two rank 0 runs pairs of a forward and a backward, m - w(p-1) of them; sums over
// replicas, the norm and the update are hidden if they fit in there.
//
// Returns those pairs, of the step that has the fewest. Throws std::invalid_argument where a fact is none.
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
