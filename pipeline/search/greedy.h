// Builds an order by list scheduling: whenever a rank is free it takes what a few plain rules prefer among the actions
// that are ready and fit into its memory, W filling the gaps (the greedy part of Zero Bubble, Qi et al. 2024, section
// 3.1, for any placement).
//
// The same engine runs in either direction of time. Seen from the end, a step is the same kind of problem: W first,
// then I travelling up the stages, then F travelling down. Forwards, the warm-up is good and the cool-down left to
// chance; backwards it is the other way round, and ranks keep just the weight gradients that their cool-down can use.
#pragma once

#include <optional>
#include <vector>

#include "pipeline/search/problem.h"
#include "pipeline/search/trains.h"

namespace train_gpt::search {

// When F and I of micro-batch 0 would run; every further micro-batch follows one period later. The repeating pattern is
// a building block of Qi et al., "Pipeline Parallelism with Controllable Memory": how long a micro-batch stays on a
// rank, over the period, is the memory that it takes there.
struct Timetable {
  std::vector<double> forward, input;  // [stage]
  double period = 0;
};

struct Policy {
  bool from_the_end = false;
  bool input_first = true;  // when F and I are both ready (from the end: F and I in these roles too)
  bool make_room = false;   // if an F lacks only memory, a W that frees it runs at once, before any I
  double least_gap = 1;     // W runs only in gaps of at least this fraction of it (0: in any gap)
  enum class Chunk { oldest_micro_batch, deepest, shallowest } chunk = Chunk::oldest_micro_batch;
  std::vector<int> warmup;  // [rank]: first-phase actions before the first turn-around; empty: as many as fit
  // If given, F and I follow this timetable instead of running when ready; W fills gaps and makes room as above.
  std::optional<Timetable> timetable;
  // If given, it replaces all of the above: micro-batches enter one after the other.
  std::optional<TrainPolicy> trains;
};

// Nothing if the rules run into a dead end.
std::optional<Order> list_schedule(const Problem& problem, const Policy& policy);

}  // namespace train_gpt::search
