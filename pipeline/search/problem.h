// The schedule search's own view of the problem, small enough to evaluate thousands of orders per second.
//
// All micro-batches cost the same, so nothing is lost if each operation of each virtual stage runs in micro-batch order
// (swap two micro-batches that overtake each other: nothing gets later; Zero Bubble, Qi et al. 2024, uses the same
// symmetry). A rank's list is then a string over 3v letters "next F, I or W of chunk c"; the micro-batch is implied by
// counting. B is I and W back to back and hands its gradient on later, so it is never better: the search emits I and W,
// except where F and B run as one pair that has a cost of its own.
//
// Memory depends on the order alone, not on time: F adds 1/v of an activation, I releases all but the fraction
// weight_memory of it, W releases the rest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/search/search.h"

namespace train_gpt::search {

inline std::size_t index(int i) { return static_cast<std::size_t>(i); }

enum Operation : std::uint8_t { kForward = 0, kInput = 1, kWeight = 2 };

// One action of an order: 3 * chunk + operation. Chunk c of a rank is its c-th virtual stage, in model order. An F with
// the mark kPaired runs as one with the I and W that follow it.
using Letter = std::uint8_t;
inline constexpr Letter kPaired = 0x80;
inline int chunk_of(Letter letter) { return (letter & ~kPaired) / 3; }
inline Operation operation_of(Letter letter) { return static_cast<Operation>((letter & ~kPaired) % 3); }
inline Letter make_letter(int chunk, Operation operation) { return static_cast<Letter>(3 * chunk + operation); }
inline bool is_paired(Letter letter) { return (letter & kPaired) != 0; }

using RankOrder = std::vector<Letter>;
using Order = std::vector<RankOrder>;  // [rank], 3*v*m letters each

struct Problem {
  Placement placement;
  int ranks = 1, chunks = 1, micro_batches = 1;
  int stages = 1;                      // ranks * chunks
  std::vector<int> rank_of, chunk_of;  // [stage]
  std::vector<int> stage_of;           // [rank * chunks + chunk]
  std::vector<double> duration[3];     // [operation][stage], of one micro-batch
  std::vector<double> fused;           // [stage of F]: of a pair F&B; empty: pairs gain nothing
  // [F, I][stage]: from stage-1 to stage and back. The transfer is the part of a hop during which the message occupies
  // its channel; both are 0 within a rank.
  std::vector<double> hop[2], transfer[2];
  double send_slowdown = 0;         // see Costs
  std::vector<int> channel[2];      // [F, I][stage]: which channel joins stage-1 and stage; -1 within a rank
  std::vector<char> shared;         // [channel]: several pairs of stages use it, so its order must be kept
  std::vector<double> limit;        // [rank], in activations of one micro-batch through one rank's share
  std::vector<double> first_start;  // [rank]: when its first forward can start, whatever the order
  double weight_memory = 1;
  Objective objective = Objective::makespan;

  int stage(int rank, int chunk) const { return stage_of[static_cast<std::size_t>(rank * chunks + chunk)]; }
  double time(Operation operation, int of_stage) const {
    return duration[operation][static_cast<std::size_t>(of_stage)];
  }
  double memory_change(Operation operation) const;  // of one action
  // All work of a rank in one step if as much of it as possible runs in pairs.
  double busy(int rank) const;
  // Least time from the start of an F, I or W until its result is there, alone or in a pair; for W, the time that must
  // follow its I.
  double shortest(Operation operation, int stage) const;
  // The least limit under which a rank can run any order: v activations of 1/v.
  static constexpr double kLeastLimit = 1.0;
};

Problem make_problem(const SearchRequest& request, const Placement& placement);

// Sums of fractions such as 1/3 are compared with this slack.
inline constexpr double kMemorySlack = 1e-9;

// Objective first; then, for the span, the makespan; then memory.
struct Score {
  double objective = 0;
  double other = 0;  // the makespan if the objective is the span, else 0
  double peak = 0;   // of live activations of any rank
  bool better_than(const Score& rival) const;
  bool reaches(const Score& bound) const;  // in objective and the other measure, up to rounding
};

// Runs an order as soon as possible, in time linear in the number of actions.
class Evaluator {
 public:
  // `keep_starts`: start() and starts() will be asked for.
  explicit Evaluator(const Problem& problem, bool keep_starts = true);
  // False if the order blocks itself or exceeds a memory limit. Afterwards the accessors below describe it.
  bool evaluate(const Order& order);

  const Score& score() const { return score_; }
  double start(int rank, std::size_t position) const { return start_[static_cast<std::size_t>(rank)][position]; }
  const std::vector<double>& starts(int rank) const { return start_[static_cast<std::size_t>(rank)]; }
  // The objective for one rank alone: its last end, or its span.
  double finish(int rank) const {
    const std::size_t r = static_cast<std::size_t>(rank);
    return problem_.objective == Objective::makespan ? free_[r] : free_[r] - first_[r];
  }
  double first_end() const { return *std::min_element(free_.begin(), free_.end()); }
  double peak(int rank) const { return peak_[static_cast<std::size_t>(rank)]; }

 private:
  enum class Input : std::uint8_t { here, not_yet, never };
  // The meaning of one letter of one rank's list, looked up once.
  struct Step {
    int stage = 0;
    Operation operation = kForward;
    double duration = 0, fused = 0;
    int source = -1, target = -1;  // stages whose result it takes and that take its result; -1: none
    int takes = -1, gives = -1;    // channels; -1: nothing crosses ranks
    bool takes_in_order = false;   // the channel is shared
    bool gives_in_order = false;   // likewise
    double hop = 0, transfer = 0;  // of what it gives
    int taker = 0;                 // rank of the target
  };
  const Step& step(int rank, Letter letter) const {
    return steps_[static_cast<std::size_t>(rank * 3 * problem_.chunks + (letter & ~kPaired))];
  }
  void make_steps();
  Input take_input(const Step& step, bool take, double& now);
  bool run_until_blocked(const RankOrder& list, int rank);
  void hand_over(const Step& step, int rank, double now);

  const Problem& problem_;
  bool keep_starts_;
  Score score_;
  std::vector<Step> steps_;                  // [rank][letter]
  std::vector<std::vector<double>> start_;   // [rank][position]
  std::vector<double> arrival_[2];           // [F or I][producing stage][micro-batch]: at the next stage's rank
  std::vector<int> done_[3];                 // [operation][stage]: how many micro-batches
  std::vector<std::size_t> position_;        // [rank]
  std::vector<double> free_, first_, peak_;  // [rank]
  std::vector<double> channel_free_;         // [channel]
  std::vector<double> sends_until_;          // [rank]: when its last message so far has left
  std::vector<std::vector<int>> sent_;       // [shared channel]: stages that its messages are for, in order
  std::vector<std::size_t> taken_;           // [shared channel]
  std::vector<int> ready_;                   // ranks to look at again
  std::vector<char> queued_;                 // [rank]
};

// Peak of live activations of one rank's list.
double peak_of(const Problem& problem, const RankOrder& list);

// The same order as a Schedule for check, simulator and executor.
Schedule to_schedule(const Problem& problem, const Order& order);

// The same lists as an order, with B split into I and W except in pairs that have a cost. Empty if a stage leaves
// micro-batch order.
std::optional<Order> from_schedule(const Problem& problem, const Schedule& schedule);

// Drops the last micro-batch of an order; `larger` is its problem.
Order without_last(const Problem& larger, Order order);

// The same order with every F paired with the I and W of one stage that follow it; and without pairs.
Order with_pairs(Order order);
Order without_pairs(Order order);

// One micro-batch at a time: slow, and fits into any memory into which an order fits.
Order one_at_a_time(const Problem& problem);

}  // namespace train_gpt::search
