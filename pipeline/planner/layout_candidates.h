// The layouts that a search considers, and what is known of them without simulating.
#pragma once

#include <vector>

#include "pipeline/planner/layouts.h"

namespace train_gpt {

// All that are legal, their cuts still open.
std::vector<RankLayout> layout_candidates(const LayoutRequest& request, const Cluster& cluster);

// b, of the smallest micro-batches that are considered.
std::int64_t smallest_micro_batch(const LayoutRequest& request);

Placement placement_of(const RankLayout& layout);

// The cut: of the uniform one, the one into stages of equal time and the fastest, the one whose slowest rank is
// fastest; for one rank that shards, its units or layers one by one, so that parameters are gathered in pieces.
Partition layout_cut(const LayoutRequest& request, const RankLayout& layout);

// Milliseconds that no step of the layout can be shorter than: the work of a rank, behind the forwards that come first.
double least_step(const LayoutRequest& request, const RankLayout& layout);

// Bytes that its largest rank cannot do without: parameters, gradients and moments, were they spread evenly.
double least_state_bytes(const LayoutRequest& request, const RankLayout& layout);

}  // namespace train_gpt
