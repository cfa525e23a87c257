// --schedule auto: the best schedule for measured costs under a memory limit.
//
// search_schedule() considers every named schedule that is legal and fits (named.h), builds orders of its own by
// list scheduling (greedy.h), improves the best of both by local search (improve.h), repeats what it found for fewer
// micro-batches (extend.h, placement_search.h), and says what no order can beat (bound.h). The problem and its
// symmetries are those of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024) and "Pipeline Parallelism with
// Controllable Memory" (NeurIPS 2024). Deterministic: work is counted, not timed, so the same request gives the same
// answer, unless it was stopped.
//
//   SearchRequest request{.ranks = 8, .micro_batches = 32, .memory_limit = {8}};
//   SearchResult result = search_schedule(request);
//   std::cout << result.reason;
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

inline constexpr int kMostSearchedChunks = 42;  // of a rank: a letter of an order is one byte

struct SearchProgress {
  double best = 0;    // the least objective so far, in its unit of time; 0: nothing fits yet
  double bound = 0;   // nothing that the request allows is faster
  std::string doing;  // "4 stages per rank"
};

struct SearchRequest {
  int ranks = 1;          // p
  int micro_batches = 1;  // m
  Costs costs = {};       // p*v values: only placements with that many virtual stages are considered
  // Most live activations per rank, in the unit of Simulation::peak_live: none (no limit), one value or p values.
  std::vector<double> memory_limit = {};
  double weight_memory = 1;  // fraction of an activation that stays alive between I and W, 0 .. 1
  Objective objective = Objective::makespan;
  std::vector<int> loop_chunks = {1, 2, 3, 4};  // v of the loop placements to consider
  bool v_shape = true;                          // consider the V placement
  bool bidirectional = false;                   // consider DualPipe: two copies of the parameters
  int max_virtual_stages = 1 << 30;             // p*v at most, e.g. the number of units of the model
  // Also try answers for fewer micro-batches one after the other: takes long, and pays where memory is scarce. Without
  // it an answer for more micro-batches may be worse than one for fewer, repeated.
  bool parts = true;
  // Called every few milliseconds with the progress so far; returning false ends the search with the best found.
  std::function<bool(const SearchProgress&)> progress = nullptr;
};

// One schedule that was looked at.
struct SearchCandidate {
  std::string name;  // as --schedule takes it; "own order" for what the search built itself
  Placement::Kind placement = Placement::Kind::loop;
  int chunks = 1;      // v
  int group_size = 0;  // of named schedules with groups
  std::int64_t messages = 0;
  bool fits = true;  // within the memory limit
  double makespan = 0, bubble = 0, span = 0, bubble_span = 0, peak_live = 0;
};

struct SearchResult {
  Schedule schedule;       // name "auto"; every stage's backwards in micro-batch order unless it is a named one
  std::string name;        // "auto: zb-v", "auto: own order, V placement"
  std::string reason;      // one sentence: why this one
  std::string searched;    // one sentence: the set that was searched
  bool stopped = false;    // by SearchRequest::progress
  Simulation simulation;   // of the schedule, with the request's costs and weight_memory; without its intervals
  double lower_bound = 0;  // of the objective, in its unit of time: nothing that the request allows is faster
  std::vector<SearchCandidate> candidates;  // named schedules in the catalog's order, then one of our own per placement
};

// Throws std::invalid_argument for values that make no sense, naming them, and for a memory limit under which nothing
// can run (below 1: one micro-batch must get through).
//
// Objective first; on ties the answer that takes less memory, then fewer messages. The answer never loses to a named
// schedule of the set searched, nor to its own answers within one lower memory limit for all ranks, nor to its own
// answers for fewer micro-batches on the same placement, one after the other.
SearchResult search_schedule(const SearchRequest& request);

}  // namespace train_gpt
