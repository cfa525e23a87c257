// The option table as cxxopts wants it: for parsing and for the layout of --help.
#pragma once

#include <cxxopts.hpp>

#include "commands/options.h"

namespace train_gpt {

cxxopts::Options declare_options(Command command);

}  // namespace train_gpt
