// Repeating patterns for the V placement when memory is scarce (Qi et al., "Pipeline Parallelism with Controllable
// Memory", NeurIPS 2024): if F and I of one micro-batch run at fixed times, and every further micro-batch does the same
// one period later, a rank holds a micro-batch for (time from F to I) / period. V-Min, V-Half and ZB-V are three such
// patterns; building_blocks() enumerates all that advance by whole slots per stage, and list scheduling follows them
// with real costs.
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/search/greedy.h"

namespace train_gpt::search {

// At most `most` patterns in which no rank has two of its F and I in one slot and whose memory is about the limit, the
// closest first. Empty for other placements.
std::vector<Timetable> building_blocks(const Problem& problem, std::size_t most);

}  // namespace train_gpt::search
