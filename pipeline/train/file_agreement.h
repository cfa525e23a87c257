// The ranks' common verdict on a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/communicator.h"

namespace train_gpt {

// Gives all ranks the hashes of all: each element is nonzero on at most one rank. Collective.
void one_hot_sum_hashes(Communicator& world, std::span<std::uint64_t> hashes);

// 16 hex digits over all bytes of a file that every rank can read; the ranks share the reading. Empty if one of them
// could not read it, or sees another size than `bytes`. Collective; the same answer on all ranks.
std::string file_checksum(Communicator& world, const std::string& path, std::int64_t bytes);

}  // namespace train_gpt
