// Shards: the parts of a rank's parameters that each of d replicas owns under --zero. A section is cut into d
// consecutive pieces at edges of atoms (65,536 elements, or a whole smaller tensor), so that one replica alone adds up
// the squares of an atom's gradients; tensors that Muon updates stay whole. A replica keeps optimizer state for its own
// pieces only, side by side in an arena of their own, those of Muon's matrices last.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "pipeline/plan/sections.h"

namespace train_gpt {

struct RankPlan;

// The offsets in the section at which the replicas' pieces begin, and its end: piece k begins at the first edge of an
// atom at or after elements * k / replicas. Sections of the same tensors are cut alike.
std::vector<std::int64_t> piece_cuts(const Section& section, const ArenaLayout& layout, int replicas);

// Elements of the arena of pieces: the largest piece of every section, so that all replicas have the same plan.
std::int64_t shard_elements(const std::vector<Section>& sections);
// The same with gradients that have no parameters, which come last.
std::int64_t gradient_shard_elements(const std::vector<Section>& sections);
// The same for elements that have a second moment.
std::int64_t second_shard_elements(const std::vector<Section>& sections);

// The pieces of one replica. Each entry of a layout is a part of a tensor: its info names the part's own elements,
// place in files and first atom.
struct Shard {
  struct Piece {
    ArenaLayout in_arena;    // of one section, at their places in the arena of all parameters
    std::int64_t ahead = 0;  // place in that arena less place in the arena of pieces
  };
  std::vector<Piece> pieces;
  ArenaLayout in_arena;              // of all sections
  ArenaLayout in_shard;              // the same, at their places in the arena of pieces
  std::vector<std::int64_t> places;  // of each section's piece in its arena: of pieces, or of gradients alone
};
Shard shard_of(const RankPlan& plan, int replica);

}  // namespace train_gpt
