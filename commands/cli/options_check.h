// Options that are right alone and wrong together.
#pragma once

#include <set>
#include <string>

#include "commands/cli/options.h"

namespace train_gpt {

// given: the option names on the command line, without dashes. Throws std::invalid_argument naming the options.
void check_together(const Options& options, const std::set<std::string>& given);

// Its part for links of a cluster, and for plan --ranks.
void check_links(const Options& options, const std::set<std::string>& given);

}  // namespace train_gpt
