// Results that simulate() derives from a finished run, one part per file: memory, channels, bounds, the critical path.
#pragma once

#include <vector>

#include "pipeline/simulate/durations.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

struct LivePeaks {
  double activations = 0.0;     // units of one micro-batch through one rank's share
  double pending_weight = 0.0;  // same unit
};

// Per rank. Depends on the order of the lists alone; the F of a pair that runs as one counts first.
std::vector<LivePeaks> live_peaks(const Schedule& schedule, const DurationTable& durations, double weight_memory);

std::vector<ChannelLoad> channel_loads(const Schedule& schedule, const StageCosts& costs,
                                       const std::vector<std::vector<Interval>>& intervals);

// Milliseconds of one rank.
struct RankWork {
  double busy = 0.0;      // all actions, without the slowdown by sends, which depends on the order
  double critical = 0.0;  // F, I and B: all but W
  double slowed = 0.0;    // all actions as they ran
};

// See Simulation::lower_bound; for incomplete lists it is the busiest rank. `more`: actions of every rank beside those
// of the lists; empty: none.
double lower_bound(const Schedule& schedule, const StageCosts& costs, const DurationTable& durations,
                   const std::vector<RankWork>& more = {});

// Derives makespan, span, ideal and bubbles from the ranks' busy times, starts and ends.
void add_up(Simulation& result);

// Sets Simulation::lower_bound, which rounding must not leave above the makespan.
void set_bound(Simulation& result, double bound);

// Walks back from the action that ends last: to the one before it on its rank if that ended when it started, else to
// the one whose message it awaited.
std::vector<ActionPosition> critical_path(const Schedule& schedule, const StageCosts& costs,
                                          const std::vector<std::vector<Interval>>& intervals);

}  // namespace train_gpt
