// train_gpt prepare --text GLOB --output FILE --tokenizer bytes
#pragma once

#include "commands/cli/options.h"

namespace train_gpt {

// Exit status. Throws as data/prepare.h says, and std::invalid_argument for another tokenizer than bytes.
int run_prepare(const Options& options);

}  // namespace train_gpt
