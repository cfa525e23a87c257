// Local search on an order: takes the critical path apart, as for job shops (Nowicki and Smutnicki 1996 move only what
// touches a block of it), and accepts small losses now and then (simulated annealing) with a generator of fixed seed.
#pragma once

#include <cstdint>

#include "pipeline/search_problem.h"

namespace train_gpt::search {

struct Improvement {
  Order order;
  Score score;
  std::int64_t evaluations = 0;
};

// `order` must be valid. Ends after `budget` evaluated actions, or as soon as the objective reaches `bound`.
Improvement improve(const Problem& problem, const Order& order, std::int64_t budget, double bound, std::uint64_t seed);

}  // namespace train_gpt::search
