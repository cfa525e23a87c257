// The order of the ranks of a job: which of them are neighbours.
#pragma once

#include <cstdint>

namespace train_gpt {

// Neighbours as the launcher numbers ranks: it fills one host after the other. Messages between stages
// follow each other all through a step, and each is waited for; what replicas exchange is more, comes once and goes on
// beside actions. Hence by default a pipeline keeps to one host, as far as that has room for it.
enum class RankOrder : std::uint8_t { pipeline, replicas };

// The rank of the job that the launcher's `rank` of `ranks` is.
int rank_in_order(int rank, int ranks, int data_parallel, RankOrder order);

}  // namespace train_gpt
