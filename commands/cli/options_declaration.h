// The option table as cxxopts wants it: for parsing and for the layout of --help.
#pragma once

// std::regex recurses once per character and takes seconds to compile; cxxopts can do without.
#define CXXOPTS_NO_REGEX
#include <cxxopts.hpp>

#include "commands/cli/options.h"

namespace train_gpt {

cxxopts::Options declare_options(Command command);

}  // namespace train_gpt
