// Local search on an order: changes its critical path, as in job shops (Nowicki and Smutnicki 1996 move only what
// touches a block of it), and sometimes accepts small losses (simulated annealing), drawn by a generator of fixed seed.
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
  Score bound;                // nothing better exists: stop when objective and other measure reach it
  bool polish = false;        // the objective cannot improve: improve the other measure
  double temperature = 0.15;  // losses of about this share of a W are accepted at first
  std::uint64_t seed = 1;
};

// `order` must be valid.
Improvement improve(const Problem& problem, const Order& order, const ImproveOptions& options, Work& work);

}  // namespace train_gpt::search
