// Cuts for placements of many stages, where a stage is a unit or two: whose ranks have equally much to do although
// layers are coarse, and whose first stages are short, so that the last rank has not long to wait.
//
// No step is shorter than the time at which a rank can start plus its work,
//
//   max over ranks r of  m * work(r) + F of the stages before r's first one,
//
// whatever the schedule. Units go from stage to stage as long as that falls, from patterns that a search by single
// moves would not get to: runs of stages of one unit, then of two, and shards of the head in stages of their own.
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/planner/partition_search.h"

namespace train_gpt {

struct SpreadProblem {
  const CutProblem& cut;           // memory is not looked at
  std::vector<double> forward_ms;  // [unit]
  int first_head = 0;              // the units from here on are shards of the head
  int micro_batches = 1;           // m
};

// The best few cuts with different figures, best first; nothing for two parameter copies.
std::vector<Partition> spread_cuts(const SpreadProblem& problem, std::size_t most);

// The expression above, in milliseconds: a lower bound of the step under any schedule with this cut.
double least_step(const SpreadProblem& problem, const Partition& partition);

}  // namespace train_gpt
