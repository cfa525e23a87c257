// Local search on an order: takes the critical path apart, as for job shops (Nowicki and Smutnicki 1996 move only what
// touches a block of it), and accepts small losses now and then (simulated annealing) with a generator of fixed seed.
#pragma once

#include <cstdint>

#include "pipeline/search/problem.h"
#include "pipeline/search/work.h"

namespace train_gpt::search {

struct Improvement {
  Order order;
  Score score;
  std::int64_t evaluations = 0;
};

struct ImproveOptions {
  std::int64_t budget = 0;    // actions to evaluate
  Score bound;                // nothing better exists: stop when objective and other measure are there
  bool polish = false;        // the objective is as good as it gets: look at the other measure as well
  double temperature = 0.15;  // losses of about this share of a W are accepted at first
  std::uint64_t seed = 1;
};

// `order` must be valid.
Improvement improve(const Problem& problem, const Order& order, const ImproveOptions& options, Work& work);

}  // namespace train_gpt::search
