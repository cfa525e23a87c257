// Lower bounds that no order on a placement can beat: proofs, not estimates.
//
// Before its first I a rank can run nothing but F, and no more of them than fit into its memory; the first I cannot
// come before one micro-batch has been to the last stage and back. After its last I a rank can run nothing but W, and
// no more of them than could be kept; yet the last gradient still has to travel to stage 0. What F and W cannot fill is
// idle time that adds to the rank's work:
//
//   D >= (start) + idle_head + busy + idle_tail,    for every rank.
//
// F and W come in whole pieces: if rank r is idle for at most e, its first I starts within e after a whole number of
// F, and what rank r-1 may do follows from that. Walking the chain of first I from the last stage down, and the chain
// of last I from stage 0 up, tells whether a target D is possible; bisection gives the bound ("whole pieces"). When
// memory is scarce another bound matters: the activations of all micro-batches, each alive for at least its round trip,
// must fit under the limit ("area").
#pragma once

#include <vector>

#include "pipeline/search/problem.h"

namespace train_gpt::search {

// For the problem's objective, in its unit of time.
double lower_bound(const Problem& problem);

// For an order of `first` followed by one of `second`, rank by rank, on the same placement within the same memory.
double joined_bound(const Problem& first, const Problem& second);

// How many F each rank runs before its first I so that a target of the objective remains possible: the smallest numbers
// that the chain above allows. Empty if none do, or if the rank's chunks differ in cost.
std::vector<int> warmup_counts(const Problem& problem, double target);

}  // namespace train_gpt::search
