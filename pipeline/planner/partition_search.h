// Where to cut a model: the contiguous cut whose slowest rank is fastest, then local moves for the simulated makespan.
//
// A rank's cost is the sum of its virtual stages, so with several of them (loop with v > 1, V, bidirectional) a short
// stage can make up for a long one. The search decides stage after stage, from both ends of the model if both ends
// belong to the same ranks (V, bidirectional), and remembers failures: for one stage per rank and for nested stages
// that is dynamic programming, polynomial and exact; for loops with v > 1 it is branch and bound, exact as far as its
// budget of nodes goes.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "pipeline/plan/partition.h"
#include "pipeline/schedule/placement.h"

namespace train_gpt {

struct CutProblem {
  Placement placement;
  std::vector<double> unit_ms;   // [unit]
  std::vector<double> slowness;  // [rank], factor on unit_ms; empty: 1
  // Bytes that a unit in this model stage adds to every rank that holds it. Empty: no limits.
  std::vector<std::vector<double>> unit_bytes;  // [model stage][unit]
  std::vector<double> limit_bytes;              // [rank]
};

struct Cut {
  Partition partition;
  double slowest_ms = 0;  // of one micro-batch through the slowest rank; bidirectional: the mean of both copies' share
  bool proven = true;     // no cut is better; false: the budget ran out
};

// Empty: no cut fits the memory (or none was found within the budget).
std::optional<Cut> fastest_cut(const CutProblem& problem);

// Milliseconds of the slowest rank under a partition; infinite if it exceeds a memory limit.
double slowest_rank(const CutProblem& problem, const Partition& partition);

// Stages of nearly equal milliseconds with at least one unit each (units >= stages).
Partition even_cut(const std::vector<double>& unit_ms, int stages);

// Moves single units between stages as long as that lowers `cost`, then does so again from cuts near the best one;
// `cost` may be infinite if a partition does not fit. About `evaluations` calls; `once`: only until no single move
// helps. Deterministic.
Partition refine_partition(Partition start, const std::function<double(const Partition&)>& cost, int evaluations,
                           bool once = false);

}  // namespace train_gpt
