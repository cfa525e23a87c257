// The search proper: orders for one placement, one number of micro-batches and one memory limit, by list scheduling
// (greedy.h) under many policies and local search (improve.h) from the best of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/search/greedy.h"
#include "pipeline/search/problem.h"
#include "pipeline/search/work.h"

namespace train_gpt::search {

struct Found {
  Order order;
  Score score;
  double first_end = 0;  // when the first rank ends its list
};

// The best few orders found so far, best first, no two with the same figures.
class Pool {
 public:
  Pool(const Problem& problem, Work& work);

  // Returns the order's objective; empty if it blocks itself or takes too much memory.
  std::optional<double> offer(Order order);
  void keep(Found found);

  bool empty() const { return orders_.empty(); }
  const Found& best() const { return orders_.front(); }
  const std::vector<Found>& orders() const { return orders_; }
  const Score& bound() const { return bound_; }
  bool at_bound() const;        // in the objective
  bool cannot_improve() const;  // in both measures

 private:
  const Problem& problem_;
  Work& work_;
  Evaluator evaluator_;
  Score bound_;
  std::vector<Found> orders_;
};

// Fills the pool by list scheduling. Returns the best policies, best first.
enum class Policies : std::uint8_t { sample, all };
std::vector<Policy> build_orders(const Problem& problem, Policies which, Pool& pool, Work& work);

// The same with the given policies alone.
void build_orders(const Problem& problem, const std::vector<Policy>& policies, Pool& pool, Work& work);

// Local search from the pool's orders.
void improve_orders(const Problem& problem, Pool& pool, Work& work);

}  // namespace train_gpt::search
