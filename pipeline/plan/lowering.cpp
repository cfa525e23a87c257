#include "pipeline/plan/lowering.h"

#include <algorithm>

namespace train_gpt {
namespace {

// Actions of the list after which all gradients of wte that live here, the embedding's and the head's, are complete.
std::size_t wte_complete(const Plan& plan, const RankPlan& rank) {
  const std::vector<Action>& list = plan.request.schedule.actions(rank.rank);
  std::size_t complete = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const StageShape& shape = rank.stage_plan(list[i].stage).shape;
    const bool weight = list[i].op == Op::backward || list[i].op == Op::backward_weight;
    const bool in_forward = shape.streams_head() && list[i].op == Op::forward;
    const bool in_weight = weight && (shape.has_embedding() || (shape.has_shards() && !shape.streams_head()));
    if (in_forward || in_weight) complete = i + 1;
  }
  return complete;
}

}  // namespace

std::vector<LoweredAction> lower(const Plan& plan, int rank) {
  if (!plan.request.computes) return {};
  const RankPlan& rank_plan = plan.ranks[static_cast<std::size_t>(rank)];
  const std::size_t end = rank_plan.actions.size();
  const bool copies = plan.request.schedule.placement.kind == Placement::Kind::bidirectional;
  const bool replicas = plan.request.batch.replicas > 1;
  std::vector<LoweredAction> lowered;
  if (copies) lowered.push_back({LoweredAction::Kind::reduce_copies, end});
  if (replicas) lowered.push_back({LoweredAction::Kind::reduce_replicas, end});
  // Sums over copies and replicas come first: they are partial sums of the same tensor.
  const std::size_t tied_after = copies || replicas ? end : wte_complete(plan, rank_plan);
  const std::vector<ArenaLayout::Entry>& entries = rank_plan.layout.entries;
  const bool shares =
      std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.head_gradient >= 0; });
  if (shares) lowered.push_back({LoweredAction::Kind::reduce_tied, tied_after});
  for (std::size_t i = 0; i < plan.tied_sums.size(); ++i) {
    if (!plan.tied_sums[i].takes_part(rank)) continue;
    lowered.push_back({LoweredAction::Kind::reduce_tied, tied_after, static_cast<int>(i)});
  }
  lowered.push_back({LoweredAction::Kind::update, end});
  return lowered;
}

char letter(LoweredAction::Kind kind) { return kind == LoweredAction::Kind::update ? 'U' : 'R'; }

}  // namespace train_gpt
