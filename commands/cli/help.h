// The text that --help prints.
#pragma once

#include <string>

#include "commands/cli/options.h"

namespace train_gpt {

// All options of the command, grouped; the commands, too, if none was named.
std::string help_text(const Options& options);

}  // namespace train_gpt
