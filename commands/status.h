// train_gpt status DIR: where every rank of a run is, or was when it ended. Needs no MPI.
#pragma once

#include "commands/cli/options.h"

namespace train_gpt {

// Exit status. Throws std::invalid_argument for bad input.
int run_status(const Options& options);

}  // namespace train_gpt
