// The results of simulate() for lists that repeat themselves, without running all of them: a schedule of a million
// micro-batches is a warm-up, one turn of a few micro-batches again and again, and a cooldown. Once the whole state of
// the run after a turn (when each rank is free, when each message under way arrives, until when each channel is taken)
// equals the state some turns earlier, shifted by one time, the turns repeat for good, since the run consists of sums
// and maxima of such times. The turns in between are then counted instead of run.
#pragma once

#include <optional>

#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// The same as simulate(make_schedule(request), costs, options) up to rounding (1e-9 of a time). Empty if the state does
// not repeat within lists of a third of the micro-batches, or if `options` ask for intervals or the critical path,
// which need every action.
std::optional<Simulation> simulate_by_turns(const ScheduleRequest& request, const Costs& costs,
                                            const SimulateOptions& options);

}  // namespace train_gpt
