// Orders and schedules: the search's compact form and the form everybody else reads.
#include <optional>
#include <utility>

#include "pipeline/search/problem.h"

namespace train_gpt::search {
namespace {}  // namespace

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
    bool in_pair = false;
    for (const Letter letter : order[index(rank)]) {
      const int stage = problem.stage(rank, chunk_of(letter));
      const Operation operation = operation_of(letter);
      const int micro_batch = done[operation][index(stage)]++;
      if (in_pair && operation == kWeight) {
        list.back().op = Op::backward;
        in_pair = false;
        continue;
      }
      list.push_back({kOps[operation], is_paired(letter), stage, micro_batch});
      in_pair |= is_paired(letter);
    }
  }
  return schedule;
}

std::optional<Order> from_schedule(const Problem& problem, const Schedule& schedule) {
  Order order(index(problem.ranks));
  std::vector<int> done[3];
  for (auto& counts : done) counts.assign(index(problem.stages), 0);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const std::vector<Action>& list = schedule.actions(rank);
    for (std::size_t i = 0; i < list.size(); ++i) {
      // A pair is written F first, whichever the list has first.
      const bool pair = !problem.fused.empty() && list[i].fused_with_next && i + 1 < list.size();
      const bool second = !problem.fused.empty() && i > 0 && list[i - 1].fused_with_next;
      const Action& action = pair && list[i].op != Op::forward     ? list[i + 1]
                             : second && list[i].op == Op::forward ? list[i - 1]
                                                                   : list[i];
      const int chunk = problem.chunk_of[index(action.stage)];
      if (pair && list[i].op != Op::backward && list[i + 1].op != Op::backward) return std::nullopt;
      const auto add = [&](Operation operation) {
        order[index(rank)].push_back(make_letter(chunk, operation));
        return done[operation][index(action.stage)]++ == action.micro_batch;
      };
      bool in_order = true;
      if (action.op == Op::forward) in_order = add(kForward);
      if (pair) order[index(rank)].back() |= kPaired;
      if (action.op == Op::backward || action.op == Op::backward_input) in_order &= add(kInput);
      if (action.op == Op::backward || action.op == Op::backward_weight) in_order &= add(kWeight);
      if (!in_order) return std::nullopt;
    }
  }
  return order;
}

Order without_last(const Problem& larger, Order order) {
  for (RankOrder& list : order) {
    std::vector<int> left(3 * index(larger.chunks), larger.micro_batches - 1);
    // A pair that loses its F or its B is one no more.
    RankOrder kept;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Letter plain = list[i] & static_cast<Letter>(~kPaired);
      if (left[plain]-- <= 0) continue;
      const bool whole = is_paired(list[i]) && left[list[i + 1]] > 0;
      kept.push_back(whole ? list[i] : plain);
    }
    list = std::move(kept);
  }
  return order;
}

Order with_pairs(Order order) {
  for (RankOrder& list : order)
    for (std::size_t i = 0; i + 2 < list.size(); ++i) {
      const bool backward = operation_of(list[i + 1]) == kInput && list[i + 2] == list[i + 1] + 1;
      if (operation_of(list[i]) == kForward && backward) list[i] |= kPaired;
    }
  return order;
}

Order without_pairs(Order order) {
  for (RankOrder& list : order)
    for (Letter& letter : list) letter &= static_cast<Letter>(~kPaired);
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
