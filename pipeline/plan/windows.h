// Windows: memory that the sections of a rank use in turn. Under --zero 2 and 3 the gradients of a section are whole
// only from the first action that adds to them until their reduction has left each replica its piece; under --zero 3
// parameters are whole only from their gathering (G) to the last action that reads them, when they are let go (L).
// Sections that are never whole at once share a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/parameters.h"
#include "pipeline/plan/sections.h"
#include "pipeline/schedule/schedule.h"

namespace train_gpt {

struct PlanRequest;
struct RankPlan;

struct Windows {
  ArenaLayout layout;                 // tensors at their places in the windows
  std::vector<std::int64_t> offsets;  // of each section
  std::int64_t elements = 0;
};

struct GradientWindows : Windows {
  std::vector<std::size_t> until;  // each section's reduction is complete before this action of the list begins
};

// One gathering of a section for a list. A position is the number of the list's actions before it.
struct Gathering {
  int section = 0;
  std::size_t after = 0;   // issued at this position; 0: after the update of the step before
  std::size_t before = 0;  // complete before this action begins
  std::size_t until = 0;   // let go at this position
};

struct ParameterWindows : Windows {
  bool per_use = false;                                     // gathered anew for each run of actions, else once per list
  std::vector<Gathering> training, validation, generation;  // in the order in which they are issued
};

// The lists of one rank.
struct RankLists {
  const std::vector<Action>& training;
  const std::vector<Action>& validation;
  const std::vector<Action>& generation;
};

// None where the request asks for none, or where nothing is gained because the windows and each replica's own pieces
// beside them are no smaller than what they replace.
std::optional<GradientWindows> gradient_windows(const PlanRequest& request, const RankPlan& rank,
                                                const std::vector<Action>& list);
std::optional<ParameterWindows> parameter_windows(const PlanRequest& request, const RankPlan& rank,
                                                  const RankLists& lists, bool per_use);

// Places, from 0, for blocks of these sizes; two that conflict do not overlap.
std::vector<std::int64_t> places_of(const std::vector<std::int64_t>& sizes,
                                    const std::vector<std::vector<bool>>& conflicts);

}  // namespace train_gpt
