#include "pipeline/plan/partition.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace train_gpt {
namespace {

void check_depth(const ModelConfig& model, int stages) {
  const int units = unit_count(model);
  if (stages <= units) return;
  throw std::invalid_argument("ranks x chunks = " + std::to_string(stages) + " virtual stages, but a model of " +
                              std::to_string(model.layers) + " layers has only " + std::to_string(units) +
                              " units (embedding, 2 per layer, " + std::to_string(head_shards(model)) +
                              " of the head): use at most " + std::to_string(units) + " stages or more --layers");
}

std::string join(const Partition& cuts) {
  std::string text;
  for (const int units : cuts) text += (text.empty() ? "" : ",") + std::to_string(units);
  return text;
}

}  // namespace

Partition uniform_partition(const ModelConfig& model, int stages) {
  check_depth(model, stages);
  const int units = unit_count(model);
  Partition cuts(static_cast<std::size_t>(stages), units / stages);
  for (int s = 0; s < units % stages; ++s) ++cuts[static_cast<std::size_t>(s)];
  return cuts;
}

void check_partition(const Partition& cuts, const ModelConfig& model, int stages) {
  check_depth(model, stages);
  const int units = unit_count(model);
  const bool positive = std::all_of(cuts.begin(), cuts.end(), [](int n) { return n >= 1; });
  if (positive && static_cast<int>(cuts.size()) == stages && std::accumulate(cuts.begin(), cuts.end(), 0) == units)
    return;
  throw std::invalid_argument("--partition " + join(cuts) + ": must be " + std::to_string(stages) +
                              " numbers >= 1 (units per virtual stage) that add up to the model's " +
                              std::to_string(units) + " units, for example " + join(uniform_partition(model, stages)));
}

}  // namespace train_gpt
