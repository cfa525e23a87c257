// The order of the ranks of a job: which of them are neighbours.
#pragma once

#include <cstdint>

namespace train_gpt {

// Which ranks are neighbours as the launcher numbers them, host by host. Ranks wait for messages between stages all
// through a step; replicas exchange more, but once, and beside actions. So by default a pipeline stays on one host as
// far as that has room for it.
enum class RankOrder : std::uint8_t { pipeline, replicas };

// The job's rank of the launcher's `rank` of `ranks`.
int rank_in_order(int rank, int ranks, int data_parallel, RankOrder order);

}  // namespace train_gpt
