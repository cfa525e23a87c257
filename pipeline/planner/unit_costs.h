// Milliseconds of every unit of a model, and what the stages of a placement cost with them.
#pragma once

#include <vector>

#include "pipeline/plan/partition.h"
#include "pipeline/planner/unit_profile.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// [unit], milliseconds of one micro-batch on a rank of slowness 1.
struct UnitCosts {
  std::vector<double> forward, input, weight;
  double total(std::size_t unit) const { return forward[unit] + input[unit] + weight[unit]; }
};

// Medians of a profile, averaged over its ranks.
UnitCosts unit_costs(const Profile& profile, const ModelConfig& model, HeadForm head);

// By what factor each of p ranks is slower than the average of the profile's. 1 for all where the ranks differ by less
// than `tolerance` (noise of measuring), or where the profile has another number of ranks.
std::vector<double> rank_slowness(const Profile& profile, int p, double tolerance = 0.15);

// Without any measurement: in proportion to the floating-point operations, F of an average rank's share (1/p of the
// model) being 1 ms. For plans of machines of which nothing is known.
UnitCosts estimated_unit_costs(const ModelConfig& model, std::int64_t seq_len, HeadForm head, int p);

// Floating-point operations of the forward of one unit per token (2 per multiply and add).
double forward_flops_per_token(const ModelConfig& model, std::int64_t seq_len, int unit);

// Sums over the units of every virtual stage. `slowness` per rank (empty: 1); `recompute` per unit of the model (empty:
// none): I repeats the forward of those units.
StageCosts stage_costs(const UnitCosts& units, const Placement& placement, const Partition& partition,
                       const std::vector<double>& slowness, const std::vector<bool>& recompute);

}  // namespace train_gpt
