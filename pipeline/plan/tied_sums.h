// A tied model's embedding and head share wte. Each shard of wte gets a gradient from the embedding and one from the
// head's unit of that shard, wherever the two live; they are summed once per step, after the sums over mirrors and
// replicas, and both ends then take the same step.
#pragma once

#include <vector>

#include "model/config.h"
#include "pipeline/plan/partition.h"
#include "pipeline/schedule/placement.h"

namespace train_gpt {

// A run of shards whose two ends live on different ranks of the pipeline. (Where they share a rank the sum is local:
// sum_tied_gradients.)
struct TiedSum {
  int embedding = 0;  // rank
  int head = 0;       // rank
  int first_shard = 0;
  int last_shard = 0;  // shards [first_shard, last_shard)

  bool takes_part(int rank) const { return rank == embedding || rank == head; }
  auto operator<=>(const TiedSum&) const = default;
};

// All sums of a pipeline, in the order in which every rank issues its own: equal pairs of ranks follow each other.
// Empty for untied models.
std::vector<TiedSum> tied_sums(const Placement& placement, const Partition& partition, const ModelConfig& model);

}  // namespace train_gpt
