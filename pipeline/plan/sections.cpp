#include "pipeline/plan/sections.h"

#include <algorithm>
#include <utility>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {
namespace {

// Shards [first, last) of the head that a stage of the partition holds.
struct Run {
  int first = 0;
  int last = 0;
};
Run run_of(const ModelConfig& model, int first_unit, int last_unit) {
  const int head = first_head_unit(model);
  return {std::max(first_unit, head) - head, std::max(last_unit, head) - head};
}

std::vector<Run> runs_of_head(const ModelConfig& model, const Partition& partition) {
  std::vector<Run> runs;
  int unit = 0;
  for (const int units : partition) {
    const Run run = run_of(model, unit, unit + units);
    if (run.first < run.last) runs.push_back(run);
    unit += units;
  }
  return runs;
}

class Arranger {
 public:
  Arranger(ArenaLayout& layout, const ModelConfig& model) : layout_(layout), model_(model) {}

  std::vector<Section> arrange(const Partition& partition, const std::vector<StagePlan>& stages) {
    layout_.elements = 0;
    for (const StagePlan& stage : stages) place_parameters(partition, stage);
    layout_.second_elements = layout_.elements;
    for (const StagePlan& stage : stages) place_matrices(stage);
    layout_.gradient_elements = layout_.elements;
    for (const StagePlan& stage : stages) {
      if (model_.tied && stage.shape.has_shards()) place_second_gradients(stage);
    }
    return std::move(sections_);
  }

 private:
  bool is_tied(const ArenaLayout::Entry& entry) const { return model_.tied && entry.info.kind == TensorKind::wte; }

  void place_parameters(const Partition& partition, const StagePlan& stage) {
    const StageShape& shape = stage.shape;
    if (model_.tied && shape.has_embedding()) {
      for (const Run& run : runs_of_head(model_, partition)) {
        place({.kind = Section::Kind::embedding, .stage = stage.stage, .first_shard = run.first},
              [&](const auto& entry) { return is_tied(entry) && holds(run, entry); });
      }
    }
    place({.kind = Section::Kind::units, .stage = stage.stage}, [&](const auto& entry) {
      const int unit = entry.info.unit;
      return !is_tied(entry) && !is_matrix(entry) && shape.first_unit <= unit && unit < shape.last_unit;
    });
    const Run run = run_of(model_, shape.first_unit, shape.last_unit);
    place({.kind = Section::Kind::head, .stage = stage.stage, .first_shard = run.first},
          [&](const auto& entry) { return is_tied(entry) && !entry.owned && holds(run, entry); });
  }

  static bool is_matrix(const ArenaLayout::Entry& entry) { return entry.matrices.count > 0; }

  void place_matrices(const StagePlan& stage) {
    const StageShape& shape = stage.shape;
    place({.kind = Section::Kind::matrices, .stage = stage.stage}, [&](const auto& entry) {
      return is_matrix(entry) && shape.first_unit <= entry.info.unit && entry.info.unit < shape.last_unit;
    });
  }

  static bool holds(const Run& run, const ArenaLayout::Entry& entry) {
    return run.first <= entry.info.shard && entry.info.shard < run.last;
  }

  template <class Belongs>
  void place(Section section, const Belongs& belongs) {
    section.offset = layout_.elements;
    for (std::size_t i = 0; i < layout_.entries.size(); ++i) {
      ArenaLayout::Entry& entry = layout_.entries[i];
      if (!belongs(entry)) continue;
      entry.offset = layout_.elements;
      layout_.elements += arena_elements(entry.info);
      section.entries.push_back(static_cast<int>(i));
    }
    section.elements = layout_.elements - section.offset;
    if (section.elements > 0) sections_.push_back(std::move(section));
  }

  // Those of the head where the embedding is on this rank, too.
  void place_second_gradients(const StagePlan& stage) {
    const Run run = run_of(model_, stage.shape.first_unit, stage.shape.last_unit);
    Section section{.kind = Section::Kind::head,
                    .stage = stage.stage,
                    .first_shard = run.first,
                    .offset = layout_.gradient_elements,
                    .has_parameters = false};
    for (std::size_t i = 0; i < layout_.entries.size(); ++i) {
      ArenaLayout::Entry& entry = layout_.entries[i];
      if (entry.head_gradient < 0 || !is_tied(entry) || !holds(run, entry)) continue;
      entry.head_gradient = layout_.gradient_elements;
      layout_.gradient_elements += arena_elements(entry.info);
      section.entries.push_back(static_cast<int>(i));
    }
    section.elements = layout_.gradient_elements - section.offset;
    if (section.elements > 0) sections_.push_back(std::move(section));
  }

  ArenaLayout& layout_;
  const ModelConfig& model_;
  std::vector<Section> sections_;
};

}  // namespace

std::size_t stage_complete(const std::vector<Action>& list, int stage) {
  std::size_t complete = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool adds = list[i].op == Op::backward || list[i].op == Op::backward_weight;
    if (list[i].stage == stage && adds) complete = i + 1;
  }
  return complete;
}

std::vector<Section> arrange_by_stage(ArenaLayout& layout, const ModelConfig& model, const Partition& partition,
                                      const std::vector<StagePlan>& stages) {
  return Arranger(layout, model).arrange(partition, stages);
}

}  // namespace train_gpt
