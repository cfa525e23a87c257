// Orders and schedules: the search's compact form and the form everybody else reads.
#include <optional>
#include <utility>

#include "pipeline/search/problem.h"

namespace train_gpt::search {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

}  // namespace

Schedule to_schedule(const Problem& problem, const Order& order) {
  Schedule schedule;
  schedule.name = "auto";
  schedule.ranks = problem.ranks;
  schedule.chunks = problem.chunks;
  schedule.micro_batches = problem.micro_batches;
  schedule.placement = problem.placement;
  constexpr Op kOps[3] = {Op::forward, Op::backward_input, Op::backward_weight};
  std::vector<int> done[3];
  for (auto& counts : done) counts.assign(index(problem.stages), 0);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    std::vector<Action>& list = schedule.lists.emplace_back();
    for (const Letter letter : order[index(rank)]) {
      const int stage = problem.stage(rank, chunk_of(letter));
      const Operation operation = operation_of(letter);
      list.push_back({kOps[operation], false, stage, done[operation][index(stage)]++});
    }
  }
  return schedule;
}

std::optional<Order> from_schedule(const Problem& problem, const Schedule& schedule) {
  Order order(index(problem.ranks));
  std::vector<int> done[3];
  for (auto& counts : done) counts.assign(index(problem.stages), 0);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    for (const Action& action : schedule.actions(rank)) {
      const int chunk = problem.chunk_of[index(action.stage)];
      const auto add = [&](Operation operation) {
        order[index(rank)].push_back(make_letter(chunk, operation));
        return done[operation][index(action.stage)]++ == action.micro_batch;
      };
      bool in_order = true;
      if (action.op == Op::forward) in_order = add(kForward);
      if (action.op == Op::backward || action.op == Op::backward_input) in_order &= add(kInput);
      if (action.op == Op::backward || action.op == Op::backward_weight) in_order &= add(kWeight);
      if (!in_order) return std::nullopt;
    }
  }
  return order;
}

Order one_at_a_time(const Problem& problem) {
  Order order;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    RankOrder& list = order.emplace_back();
    for (int micro_batch = 0; micro_batch < problem.micro_batches; ++micro_batch) {
      for (int chunk = 0; chunk < problem.chunks; ++chunk) list.push_back(make_letter(chunk, kForward));
      for (int chunk = problem.chunks - 1; chunk >= 0; --chunk) {
        list.push_back(make_letter(chunk, kInput));
        list.push_back(make_letter(chunk, kWeight));
      }
    }
  }
  return order;
}

}  // namespace train_gpt::search
