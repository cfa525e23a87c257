// Which units forget their forward and repeat it, layers in backward_input and shards of the head in backward_weight
// (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016): one more forward of those units saves memory in
// the slots F..I and F..W.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

// A stage of one unit alone, for asking stage_bytes() what it keeps with and without recomputation.
StageShape unit_shape(const PlanRequest& request, int unit, bool recompute);

// --recompute LIST: the first `counts[s]` units of every model stage s that can be recomputed: attention, MLP and
// shards of a head that the stage does not stream. Throws std::invalid_argument naming the option, the list and what
// would be right.
std::vector<bool> recompute_list(const std::vector<int>& counts, const ModelConfig& model, const Partition& partition,
                                 HeadForm head);
// How many of the units that the list asks for are not in their stages: 0 where it suits the partition.
int missing_units(const std::vector<int>& counts, const ModelConfig& model, const Partition& partition, HeadForm head);

// --recompute auto: the fewest units with which every rank of the plan stays within its of `limits`, bytes; per rank
// those that save most, among equal ones those of early stages first. Nothing if not even all units suffice.
std::optional<std::vector<bool>> recompute_to_fit(PlanRequest request, const std::vector<std::int64_t>& limits);

}  // namespace train_gpt
