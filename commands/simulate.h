// train_gpt simulate: what schedules cost, without model, MPI or GPU.
#pragma once

#include <iostream>

#include "commands/cli/options.h"

namespace train_gpt {

// Simulates every schedule that was asked for and prints them to `out`: a table that compares them, details if there is
// one only, timelines with --ascii; with --json one array and nothing else. What had to be left out goes there, too,
// but to `notices` with --json. Files of --svg and --csv are written. Returns the exit status.
//
// Throws std::invalid_argument if a schedule that was named cannot exist for these sizes or if nothing is left under
// --memory-limit, std::runtime_error if a file cannot be written.
int run_simulate(const Options& options, std::ostream& out = std::cout, std::ostream& notices = std::cerr);

}  // namespace train_gpt
