#include "pipeline/plan/shards.h"

#include <algorithm>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {
namespace {

std::int64_t largest_piece(const Section& section) {
  std::int64_t largest = 0;
  for (std::size_t k = 0; k + 1 < section.cuts.size(); ++k) {
    largest = std::max(largest, section.cuts[k + 1] - section.cuts[k]);
  }
  return largest;
}

// The part of a tensor that lies in [begin, end) of the arena, which are edges of atoms.
ArenaLayout::Entry part_of(const ArenaLayout::Entry& entry, std::int64_t begin, std::int64_t end) {
  ArenaLayout::Entry part = entry;
  part.offset = std::max(entry.offset, begin);
  const std::int64_t skipped = part.offset - entry.offset;
  part.info.elements = std::min(entry.offset + entry.info.elements, end) - part.offset;
  part.info.offset += skipped;
  part.info.first_atom += skipped / kAtomElements;
  part.head_gradient = -1;
  return part;
}

}  // namespace

std::vector<std::int64_t> piece_cuts(const Section& section, const ArenaLayout& layout, int replicas) {
  std::vector<std::int64_t> edges;  // of atoms, from the start of the section
  std::int64_t begin = 0;
  for (const int index : section.entries) {
    const ArenaLayout::Entry& entry = layout.entries[static_cast<std::size_t>(index)];
    const std::int64_t pieces = entry.matrices.count > 0 ? 1 : entry.info.atoms();
    for (std::int64_t atom = 0; atom < pieces; ++atom) edges.push_back(begin + atom * kAtomElements);
    begin += arena_elements(entry.info);
  }
  edges.push_back(section.elements);
  std::vector<std::int64_t> cuts;
  for (std::int64_t k = 0; k <= replicas; ++k) {
    cuts.push_back(*std::ranges::lower_bound(edges, section.elements * k / replicas));
  }
  return cuts;
}

std::int64_t shard_elements(const std::vector<Section>& sections) {
  std::int64_t elements = 0;
  for (const Section& section : sections) elements += section.has_parameters ? largest_piece(section) : 0;
  return elements;
}

std::int64_t gradient_shard_elements(const std::vector<Section>& sections) {
  std::int64_t elements = 0;
  for (const Section& section : sections) elements += largest_piece(section);
  return elements;
}

std::int64_t second_shard_elements(const std::vector<Section>& sections) {
  std::int64_t elements = 0;
  for (const Section& section : sections) {
    if (section.has_parameters && section.kind != Section::Kind::matrices) elements += largest_piece(section);
  }
  return elements;
}

Shard shard_of(const RankPlan& plan, int replica) {
  Shard shard;
  std::int64_t in_shard = 0;
  for (const Section& section : plan.sections) {
    shard.places.push_back(in_shard);
    if (!section.has_parameters) {  // all others come before
      in_shard += largest_piece(section);
      continue;
    }
    const std::int64_t begin = section.offset + section.cuts[static_cast<std::size_t>(replica)];
    const std::int64_t end = section.offset + section.cuts[static_cast<std::size_t>(replica) + 1];
    Shard::Piece& piece = shard.pieces.emplace_back();
    piece.ahead = begin - in_shard;
    in_shard += largest_piece(section);
    for (const int index : section.entries) {
      const ArenaLayout::Entry& entry = plan.layout.entries[static_cast<std::size_t>(index)];
      if (entry.offset >= end || entry.offset + entry.info.elements <= begin) continue;
      ArenaLayout::Entry part = part_of(entry, begin, end);
      piece.in_arena.entries.push_back(part);
      shard.in_arena.entries.push_back(part);
      part.offset -= piece.ahead;
      shard.in_shard.entries.push_back(std::move(part));
    }
  }
  return shard;
}

}  // namespace train_gpt
