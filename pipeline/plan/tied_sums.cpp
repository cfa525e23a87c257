#include "pipeline/plan/tied_sums.h"

#include <algorithm>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

std::vector<TiedSum> tied_sums(const Placement& placement, const Partition& partition, const ModelConfig& model) {
  if (!model.tied) return {};
  std::vector<int> embedding_of_copy(2, -1);
  for (const Placement::VirtualStage& stage : placement.stages) {
    if (stage.model_stage == 0) embedding_of_copy[static_cast<std::size_t>(stage.copy)] = stage.rank;
  }
  const auto has_embedding = [&](int rank) {
    return std::find(embedding_of_copy.begin(), embedding_of_copy.end(), rank) != embedding_of_copy.end();
  };
  const std::vector<UnitRange> ranges = unit_ranges(placement, partition);
  const int head = first_head_unit(model);
  std::vector<TiedSum> sums;
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const Placement::VirtualStage& stage = placement.stages[s];
    if (ranges[s].last <= head || has_embedding(stage.rank)) continue;
    sums.push_back({.embedding = embedding_of_copy[static_cast<std::size_t>(stage.copy)],
                    .head = stage.rank,
                    .first_shard = std::max(ranges[s].first, head) - head,
                    .last_shard = ranges[s].last - head});
  }
  std::sort(sums.begin(), sums.end());
  return sums;
}

}  // namespace train_gpt
