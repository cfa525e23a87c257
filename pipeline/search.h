// --schedule auto: the best schedule for measured costs under a memory limit.
//
// search_schedule() considers every named schedule that is legal and fits, then builds its own orders (search_greedy.h)
// and improves them (search_improve.h), and says how far the answer can be from the optimum (search_bound.h). The
// methods follow Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024) and "Pipeline Parallelism with Controllable
// Memory" (NeurIPS 2024), and go beyond their heuristics. Deterministic: the same request gives the same answer.
#pragma once

#include <string>
#include <vector>

#include "pipeline/schedule.h"
#include "pipeline/simulate.h"

namespace train_gpt {

enum class SearchObjective { makespan, span };

struct SearchRequest {
  int ranks = 1;          // p
  int micro_batches = 1;  // m
  Costs costs;            // p*v values: only placements with that many virtual stages are considered
  // Most live activations per rank, in the unit of Simulation::peak_live: none (no limit), one value or p values.
  std::vector<double> memory_limit;
  double weight_memory = 1;  // fraction of an activation that stays alive between I and W
  SearchObjective objective = SearchObjective::makespan;
  std::vector<int> loop_chunks{1, 2, 4};  // v of the loop placements to consider
  bool v_shape = true;                    // consider the V placement
  bool bidirectional = false;             // consider DualPipe: two copies of the parameters
  int max_virtual_stages = 1 << 30;       // p*v at most, e.g. the number of units of the model
};

}  // namespace train_gpt
