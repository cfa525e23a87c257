// Cutting a model's units, of which each shard of the head is one, into the stages of a schedule.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace train_gpt {

// Units per model stage, in model order: all >= 1, together unit_count(model).
using Partition = std::vector<int>;

// Equal numbers of units; the first stages take the remainder. Throws std::invalid_argument when there are fewer units
// than stages.
Partition uniform_partition(const ModelConfig& model, int stages);

// `cuts` as given by --partition. Throws std::invalid_argument, naming the option and what would be right, unless it is
// a partition of this model into this many stages.
void check_partition(const Partition& cuts, const ModelConfig& model, int stages);

}  // namespace train_gpt
