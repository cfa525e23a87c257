// The pieces of gradients and parameters that a replica alone has under --zero, those that it gets from the others, and
// the gathers of parameters that steps and forwards alone wait for.
#include <algorithm>
#include <utility>

#include "pipeline/train/trainer.h"

namespace train_gpt {

void Trainer::prepare_windows() {
  const RankPlan& rank = memory_.plan();
  is_gathered_ = !has_parts();
  if (!has_parts()) return;
  constexpr std::int64_t kFloat = sizeof(float);
  for (const Section& one : rank.sections) {
    std::vector<std::int64_t>& cuts = low_cuts_.emplace_back(one.cuts);
    for (std::int64_t& cut : cuts) cut = cut * element_size(plan_.request.precision) / kFloat;
  }
  forward_gathers_.resize(
      std::max(rank.parameter_windows->validation.size(), rank.parameter_windows->generation.size()));
}

// ---- gradients ------------------------------------------------------------------------------------------------------

// The part of a section that this replica owns, in the arena.
ElementRange Trainer::own_piece(const Section& section) const {
  const auto replica = static_cast<std::size_t>(groups_.replica());
  return {.offset = section.offset + section.cuts[replica],
          .elements = section.cuts[replica + 1] - section.cuts[replica]};
}

// Once they are reduced.
Trainer::OwnGradients Trainer::own_gradients(int index) const {
  const ElementRange piece = own_piece(section(index));
  float* values = memory_.plan().gradient_windows
                      ? memory_.gradient_shards() + shard_.places[static_cast<std::size_t>(index)]
                      : memory_.step_gradients(gradients_of_) + piece.offset;
  return {values, piece.elements};
}

// From a window, which others use next.
void Trainer::keep_own_gradients(int index) {
  const std::optional<GradientWindows>& windows = memory_.plan().gradient_windows;
  if (!windows) return;
  const OwnGradients own = own_gradients(index);
  if (own.elements == 0) return;
  const std::int64_t in_section = own_piece(section(index)).offset - section(index).offset;
  device_.copy(own.values, memory_.gradients() + windows->offsets[static_cast<std::size_t>(index)] + in_section,
               own.elements * static_cast<std::int64_t>(sizeof(float)));
}

// Sums the gradients of shards of wte whose embedding and head both live here.
void Trainer::sum_tied_gradients_here() {
  const RankPlan& rank = memory_.plan();
  if (!rank.gradient_windows) {
    return sum_tied_gradients(device_, rank.layout, memory_.step_gradients(gradients_of_));
  }
  for (std::size_t head = 0; head < rank.sections.size(); ++head) {
    if (rank.sections[head].has_parameters) continue;
    const auto embedding = std::ranges::find_if(rank.sections, [&](const Section& one) {
      return one.kind == Section::Kind::embedding && one.first_shard == rank.sections[head].first_shard;
    });
    const OwnGradients sum = own_gradients(static_cast<int>(embedding - rank.sections.begin()));
    if (sum.elements > 0) device_.add(sum.values, own_gradients(static_cast<int>(head)).values, sum.elements);
  }
}

// ---- parameters -----------------------------------------------------------------------------------------------------

// The pieces of all replicas come together where the section is whole.
Ticket Trainer::start_gather(int index) {
  const Section& one = section(index);
  if (!has_parts()) return groups_.replicas->all_gather(memory_.parameters() + one.offset, one.cuts);
  const auto at = static_cast<std::size_t>(index);
  const std::int64_t element = element_size(plan_.request.precision);
  const ElementRange piece = own_piece(one);
  char* window =
      static_cast<char*>(memory_.working_parameters()) + memory_.plan().parameter_windows->offsets[at] * element;
  char* mine = window + (piece.offset - one.offset) * element;
  const float* values = memory_.parameters() + shard_.places[at];
  if (piece.elements > 0) {
    if (plan_.request.precision == Precision::fp32) {
      device_.copy(mine, values, piece.elements * element);
    } else {
      device_.from_float(mine, values, piece.elements);
    }
  }
  return groups_.replicas->all_gather(reinterpret_cast<float*>(window), low_cuts_[at]);
}

// Behind an update: what the next step needs first is asked for first.
void Trainer::issue_gathers() {
  if (!shards()) return;
  is_gathered_ = true;
  for (std::size_t i = update_at_ + 1; i < lowered_.size(); ++i) issue(i);
}

// Gathers of the step before go on beside this one. Those that were complete when it began have taken no time of it.
void Trainer::begin_gathers() {
  if (!is_gathered_ || !plan_.request.computes) issue_gathers();
  for (std::size_t i = update_at_ + 1; i < lowered_.size(); ++i) {
    if (running_[i].group != nullptr) continue;
    lowered_marks_[i].issued = lowered_marks_[i].begin = lowered_marks_[i].end = device_.mark();
  }
}

void Trainer::before_action(ForwardUse use, std::size_t action) {
  if (use == ForwardUse::training) return await_needed(action);
  if (!has_parts()) return;
  const ParameterWindows& windows = *memory_.plan().parameter_windows;
  gather_for(use == ForwardUse::validation ? windows.validation : windows.generation, action);
}

// The parameters of its stage must be here, and the place of its gradients must be free.
void Trainer::await_needed(std::size_t action) {
  for (std::size_t i = 0; i < lowered_.size(); ++i) {
    if (lowered_[i].before <= action) finish_reduction(i);
  }
}

void Trainer::finish_gathers() {
  for (std::size_t i = update_at_ + 1; i < lowered_.size(); ++i) finish_reduction(i);
}

// Forwards alone gather for themselves, in the place of what the next step needs first.
void Trainer::begin_forwards() {
  finish_gathers();
  if (has_parts()) is_gathered_ = false;
  next_gather_ = 0;
}

void Trainer::gather_for(const std::vector<Gathering>& list, std::size_t action) {
  for (; next_gather_ < list.size() && list[next_gather_].after <= action; ++next_gather_) {
    forward_gathers_[next_gather_] = {groups_.replicas.get(), start_gather(list[next_gather_].section), 0};
  }
  for (std::size_t i = 0; i < next_gather_; ++i) {
    if (list[i].before > action || forward_gathers_[i].group == nullptr) continue;
    waits_for_ = "the parameters of the other replicas";
    std::exchange(forward_gathers_[i].group, nullptr)->await(forward_gathers_[i].ticket);
    waits_for_ = nullptr;
  }
}

// Before its actions run alone. Collective over the replicas.
void Trainer::gather_stage(int stage) {
  if (!has_parts()) return;
  begin_forwards();
  const RankPlan& rank = memory_.plan();
  for (std::size_t i = 0; i < rank.sections.size(); ++i) {
    const Section& one = rank.sections[i];
    const bool shared = one.kind == Section::Kind::embedding && rank.stage_plan(stage).shape.has_shards();
    if (one.has_parameters && (one.stage == stage || shared)) {
      groups_.replicas->await(start_gather(static_cast<int>(i)));
    }
  }
}

}  // namespace train_gpt
