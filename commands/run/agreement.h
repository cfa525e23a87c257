// Ranks of one job may see different things: another build on another host, another file at the same path, other
// options in the second part of a launcher's command. A run of such ranks hangs, or trains a mixture.
#pragma once

#include <string>
#include <vector>

#include "kernels/communicator.h"

namespace train_gpt {

// Something that all ranks must see alike: "the file train.bin", "1000 bytes, checksum 0123".
struct Seen {
  std::string what;
  std::string value;
};

// Compares what all ranks see with what rank 0 sees. Collective. Returns on all ranks a line that names the first
// difference, the rank, its host and both values; empty: they agree.
std::string disagreement(Communicator& world, const std::vector<Seen>& seen);

// This program and its command line.
std::vector<Seen> seen_of_start();

// A file as identity_of() describes it.
Seen seen_file(const std::string& path);

}  // namespace train_gpt
