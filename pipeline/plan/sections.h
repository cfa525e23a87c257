// Sections: parts of a rank's gradients that are reduced as one. The tensors of a virtual stage lie side by side in the
// rank's arena, so that its gradients can leave as soon as its last W is done. The gradient of a tied embedding is the
// sum of two ends: there each run of shards that shares a stage of the head is a section of its own, at both ends, so
// that both ends sum the same ranges over replicas.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "pipeline/plan/partition.h"
#include "pipeline/schedule/schedule.h"

namespace train_gpt {

struct StagePlan;

struct Section {
  enum class Kind : std::uint8_t {
    units,      // all tensors of a stage but a tied wte and matrices
    matrices,   // that Muon updates: they have no second moment, and come after all other tensors
    embedding,  // a run of shards of a tied wte, where the embedding is
    head        // the same where the head is; where both are on one rank, it has gradients and no parameters
  };
  Kind kind = Kind::units;
  int stage = 0;            // virtual stage that adds to it
  int first_shard = 0;      // of wte; the run begins there
  std::int64_t offset = 0;  // in the gradient arena, and in that of the parameters if it has any
  std::int64_t elements = 0;
  bool has_parameters = true;
  std::vector<int> entries = {};        // of ArenaLayout::entries, in their order
  std::vector<std::int64_t> cuts = {};  // --zero: where the replicas' pieces begin, and the end (shards.h); else empty

  bool is_of_tied_wte() const { return kind == Kind::embedding || kind == Kind::head; }
};

// Orders the tensors of `layout` by stage and returns where each section lies. `stages`: those of one rank.
std::vector<Section> arrange_by_stage(ArenaLayout& layout, const ModelConfig& model, const Partition& partition,
                                      const std::vector<StagePlan>& stages);

// How many actions of a list are done when a stage's gradients are complete.
std::size_t stage_complete(const std::vector<Action>& list, int stage);

}  // namespace train_gpt
