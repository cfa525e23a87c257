// The option table in the form of cxxopts: for parsing and for the layout of --help.
#pragma once

// std::regex recurses once per character and takes seconds to compile; cxxopts can do without.
#define CXXOPTS_NO_REGEX
#include <cxxopts.hpp>

#include "commands/cli/options.h"

namespace train_gpt {

// Flags are texts to the parser, so that --json=yes can be refused, and have no value in --help.
enum class DeclaredFor : std::uint8_t { parsing, help };
inline constexpr const char* kFlagGiven = "true";

cxxopts::Options declare_options(Command command, DeclaredFor purpose);

}  // namespace train_gpt
