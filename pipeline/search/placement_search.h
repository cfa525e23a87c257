// The answer of `auto` for one placement. Answers are comparable:
//
//   more memory is never worse:   an answer within a limit is the best of all answers within lower limits (the rungs of
//                                 ladder.h, and the peaks of named schedules), and of what is found within this one;
//   more micro-batches are never  an answer for m is never slower than the answers for two parts of m, one list after
//   worse than fewer, repeated:   the other: all parts for m <= 64, two halves (and so on) beyond.
//
// An order for m + 1 without its last micro-batch is a candidate for m, too. Candidates that a bound rules out are
// skipped, which changes no answer. None of this holds for a search that was stopped.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "pipeline/search/own_orders.h"
#include "pipeline/search/search.h"

namespace train_gpt::search {

class PlacementSearch {
 public:
  using Siblings = std::vector<std::unique_ptr<PlacementSearch>>;
  // All four have to outlive it; `siblings` are the searches of all placements, this one among them.
  PlacementSearch(const SearchRequest& request, const Placement& placement, Work& work, const Siblings& siblings);

  double bound() const { return bound_; }  // no order on this placement is better, in the objective
  const Placement& placement() const { return placement_; }

  // Offers a named schedule of the request's m on this placement; those of fewer micro-batches are made here.
  void solve();
  const Found& best() const { return *best_; }
  Schedule best_schedule() const;

 private:
  using Answer = std::shared_ptr<const Found>;
  struct Known {
    Answer answer;  // the best one if it is below `below`
    double below = 0;
    bool inherited = false;  // it is the answer of the level below
  };
  // The orders built for one m and one limit, best first.
  struct Built {
    std::vector<Answer> orders;
    std::vector<Policy> policies;
    void take(const Pool& pool);
  };

  Problem problem_at(int micro_batches, std::size_t level) const;
  double bound_at(int micro_batches, std::size_t level);
  std::size_t level_at(int micro_batches, std::size_t level) const;
  bool searched(int micro_batches, std::size_t level) const;
  const std::vector<Order>& named(int micro_batches);
  const Known& answer(int micro_batches, std::size_t level, double target);
  const Built& sampled(int micro_batches, std::size_t level);
  const Built& sampled_within(int micro_batches, double limit);
  double bound_within(int micro_batches, double limit);
  std::size_t level_within(int micro_batches, double limit);
  const Built& built(int micro_batches, std::size_t level);
  const Built& improved(int micro_batches, std::size_t level);
  void take_leaner(int micro_batches, std::size_t level, Answer& best);
  void try_parts(int micro_batches, std::size_t level, double target, Pool& pool);
  bool improves(int micro_batches, std::size_t level);
  bool promises(int micro_batches, std::size_t level, double factor);
  void make_levels();

  const SearchRequest& request_;
  Placement placement_;
  Work& work_;
  const Siblings& siblings_;
  bool levels_made_ = false;
  double bound_ = 0;
  double most_memory_ = 0;      // the request's largest limit, or its m
  std::vector<double> levels_;  // ascending limits; the last is the request's
  std::vector<char> rung_;      // [level]: a rung of the ladder, on which orders of its own are built
  std::map<int, std::vector<Order>> named_;
  std::map<std::pair<int, std::size_t>, Known> answers_;
  std::map<std::pair<int, std::size_t>, Built> sampled_, built_, improved_;
  std::map<std::pair<int, std::size_t>, double> bounds_;
  Answer best_;
};

}  // namespace train_gpt::search
