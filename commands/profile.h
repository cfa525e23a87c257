// `train_gpt profile`: measures what units and messages cost on this machine, for the sizes of the options.
#pragma once

#include "commands/cli/options.h"

namespace train_gpt {

// Prints a table; with --profile FILE it writes the costs there, for train and plan. Runs under mpirun: all ranks are
// measured at once. Returns the exit status.
int run_profile(const Options& options);

}  // namespace train_gpt
