// train_gpt generate: continues a prompt with a model file. Runs on every rank.
#pragma once

#include "commands/cli/options.h"

namespace train_gpt {

// Exit status. Throws std::invalid_argument for bad input.
int run_generate(const Options& options);

}  // namespace train_gpt
