// train_gpt train: the default command.
#pragma once

#include "commands/cli/options.h"

namespace train_gpt {

// Runs on every rank of the job. Returns the exit status; throws std::invalid_argument for bad input.
int run_train(const Options& options);

}  // namespace train_gpt
