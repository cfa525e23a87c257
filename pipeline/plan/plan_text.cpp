// A plan in a few words: the order of sums, and how the head is computed.
#include <bit>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

std::string order_of_sums(const BatchShape& batch) {
  const std::string groups = std::to_string(batch.groups);
  if (batch.groups <= 2) return groups;
  return groups + (std::has_single_bit(static_cast<unsigned>(batch.replicas)) ? " in a binary tree" : " in rank order");
}

std::string head_text(const Plan& plan) {
  int ranks = 0;
  int most_shards = 0;  // of one stage
  const int head = first_head_unit(plan.request.model);
  for (const RankPlan& rank : plan.ranks) {
    bool has_shards = false;
    for (const StagePlan& stage : rank.stages) {
      if (stage.shape.streams_head()) return "streamed";
      has_shards = has_shards || stage.shape.has_shards();
      most_shards = std::max(most_shards, stage.shape.last_unit - std::max(stage.shape.first_unit, head));
    }
    ranks += has_shards ? 1 : 0;
  }
  const int shards = head_shards(plan.request.model);
  if (most_shards == shards) return "stored";
  return std::to_string(shards) + " shards on " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

}  // namespace train_gpt
