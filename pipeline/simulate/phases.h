// What simulate() says of gpipe and breadth-first, whose lists are phases: all forwards of a chunk, then of the next
// one, then the backwards likewise. They do not repeat themselves, but need no lists: a phase is gone through stage by
// stage, with the moments at which the micro-batches leave the stage before as all that is kept.
#pragma once

#include <optional>

#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

bool runs_in_phases(const std::string& name);

// The same as simulate(make_schedule(request), costs, options) but for rounding (1e-9 of a time), in memory for one or
// two numbers per micro-batch. Nothing for other schedules, for less than a thousand micro-batches, or if `options` ask
// for intervals or the critical path, which lists of every action have.
std::optional<Simulation> simulate_in_phases(const ScheduleRequest& request, const Costs& costs,
                                             const SimulateOptions& options);

}  // namespace train_gpt
