// Milliseconds of every unit of a model, and the resulting costs of a placement's stages.
#pragma once

#include <vector>

#include "pipeline/plan/partition.h"
#include "pipeline/planner/unit_profile.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// F, I and W of one micro-batch, milliseconds.
struct PassCosts {
  double forward = 0, input = 0, weight = 0;
};

// [unit], on a rank of slowness 1. Every shard of the head is a unit, with its exponentials kept.
struct UnitCosts {
  std::vector<double> forward, input, weight;
  PassCosts streamed_head;  // of a stage that streams the whole head, instead of its shards
  int first_head = 0;       // unit
  double total(std::size_t unit) const { return forward[unit] + input[unit] + weight[unit]; }
};

// Medians of a profile, averaged over its ranks.
UnitCosts unit_costs(const Profile& profile, const ModelConfig& model);

// The factor by which each of p ranks is slower than the average of the profile's. 1 for all if the ranks differ by
// less than `tolerance` (noise of measuring), or if the profile has another number of ranks.
std::vector<double> rank_slowness(const Profile& profile, int p, double tolerance = 0.15);

// Costs without any measurement, for machines of which nothing is known: in proportion to the floating-point
// operations, so that a third of the work of an average rank (1/p of the model's) is 1 ms; layers have F = I = W,
// shards of the head 2:0:1.
UnitCosts estimated_unit_costs(const ModelConfig& model, std::int64_t seq_len, int p);

// A third of the floating-point operations of one unit per token (2 per multiply and add): those of its forward, except
// for the head, whose F has two of its three products.
double third_of_flops_per_token(const ModelConfig& model, std::int64_t seq_len, int unit);

// Sums over the units of every virtual stage. `slowness` per rank (empty: 1); `recompute` per unit of the model (empty:
// none): I repeats the forward of those units, W the scores of those shards (half of their F).
StageCosts stage_costs(const UnitCosts& units, HeadForm head, const Placement& placement, const Partition& partition,
                       const std::vector<double>& slowness, const std::vector<bool>& recompute);

}  // namespace train_gpt
