#include "pipeline/plan/sections.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "pipeline/plan/execution_plan.h"
#include "pipeline/simulate/reductions.h"

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
  Arranger(ArenaLayout& layout, const ModelConfig& model, ReductionParts parts)
      : layout_(layout), model_(model), parts_(parts) {}

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
        place({.kind = Section::Kind::embedding, .stage = stage.stage, .first_unit = 0, .first_shard = run.first},
              [&](const auto& entry) { return is_tied(entry) && holds(run, entry); });
      }
    }
    place_units(Section::Kind::units, stage, parts_.units,
                [&](const auto& entry) { return !is_tied(entry) && !is_matrix(entry); });
    const Run run = run_of(model_, shape.first_unit, shape.last_unit);
    place(head_section(stage), [&](const auto& entry) { return is_tied(entry) && !entry.owned && holds(run, entry); });
  }

  Section head_section(const StagePlan& stage) const {
    return {.kind = Section::Kind::head,
            .stage = stage.stage,
            .first_unit = std::max(stage.shape.first_unit, first_head_unit(model_)),
            .first_shard = run_of(model_, stage.shape.first_unit, stage.shape.last_unit).first};
  }

  // What `belongs` of the units of a stage, in runs of nearly equal size.
  template <class Belongs>
  void place_units(Section::Kind kind, const StagePlan& stage, int parts, const Belongs& belongs) {
    std::vector<std::int64_t> elements(static_cast<std::size_t>(stage.shape.last_unit), 0);  // of each unit
    for (const ArenaLayout::Entry& entry : layout_.entries) {
      const int unit = entry.info.unit;
      const bool in_stage = stage.shape.first_unit <= unit && unit < stage.shape.last_unit;
      if (in_stage && belongs(entry)) elements[static_cast<std::size_t>(unit)] += arena_elements(entry.info);
    }
    for (const UnitRange& run : runs_of(elements, stage.shape.first_unit, parts)) {
      place({.kind = kind, .stage = stage.stage, .first_unit = run.first}, [&](const auto& entry) {
        return belongs(entry) && run.first <= entry.info.unit && entry.info.unit < run.last;
      });
    }
  }

  // At most so many runs of units, the largest of which is as small as it can be, in the order of the units.
  static std::vector<UnitRange> runs_of(const std::vector<std::int64_t>& elements, int first_unit, int parts) {
    std::int64_t low = *std::ranges::max_element(elements);
    for (std::int64_t high = std::reduce(elements.begin(), elements.end()); low < high;) {
      const std::int64_t middle = low + (high - low) / 2;
      const bool suffices = filled_from_the_end(elements, first_unit, middle).size() <= static_cast<std::size_t>(parts);
      (suffices ? high : low) = suffices ? middle : middle + 1;
    }
    std::vector<UnitRange> runs = filled_from_the_end(elements, first_unit, low);
    std::ranges::reverse(runs);
    return runs;
  }

  // W begins with the last unit: what is left over is the run that it ends with, which nothing of the stage hides.
  static std::vector<UnitRange> filled_from_the_end(const std::vector<std::int64_t>& elements, int first_unit,
                                                    std::int64_t most) {
    std::vector<UnitRange> runs;
    std::int64_t sum = 0;
    for (int unit = static_cast<int>(elements.size()); unit-- > first_unit;) {
      const std::int64_t own = elements[static_cast<std::size_t>(unit)];
      if (runs.empty() || sum + own > most) {
        runs.push_back({unit, unit + 1});
        sum = 0;
      }
      runs.back().first = unit;
      sum += own;
    }
    return runs;
  }

  static bool is_matrix(const ArenaLayout::Entry& entry) { return entry.matrices.count > 0; }

  void place_matrices(const StagePlan& stage) {
    place_units(Section::Kind::matrices, stage, parts_.matrices, [](const auto& entry) { return is_matrix(entry); });
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
    Section section = head_section(stage);
    section.offset = layout_.gradient_elements;
    section.has_parameters = false;
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
  ReductionParts parts_;
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

// Mirrored ranks reduce in one order whatever their lists are, and without a flush all waits for the end of a window.
// Muon's matrices are dealt out whole: the fewer of them a section has, the less even the replicas' pieces.
ReductionParts reduction_parts(const PlanRequest& request) {
  if (request.batch.replicas == 1 || request.directions() == 2 || request.flushless()) return {};
  return {.units = kReductionParts, .matrices = request.zero > 0 ? 1 : kReductionParts};
}

std::vector<Section> arrange_by_stage(ArenaLayout& layout, const ModelConfig& model, const Partition& partition,
                                      const std::vector<StagePlan>& stages, ReductionParts parts) {
  return Arranger(layout, model, parts).arrange(partition, stages);
}

}  // namespace train_gpt
