// train_gpt evaluate: validation loss of a model file, through the pipeline that the options describe. Runs on every
// rank.
#pragma once

#include "commands/cli/options.h"

namespace train_gpt {

// Exit status. Throws std::invalid_argument for bad input.
int run_evaluate(const Options& options);

}  // namespace train_gpt
