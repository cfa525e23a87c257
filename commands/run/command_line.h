// The command line of this process, as the system has it.
#pragma once

#include <string>
#include <vector>

namespace train_gpt {

// The program's name first.
std::vector<std::string> own_command_line();

// The shell command that continues a run of this command line on this number of ranks: `--output FOLDER --resume
// latest` in the place of what it said of both.
std::string command_that_goes_on(const std::vector<std::string>& words, int ranks, const std::string& folder);

// The command that starts that run with other options, in a folder of its own: `replaced` options are left out and
// `added` is there instead, as in "--schedule zb-v".
std::string command_otherwise(const std::vector<std::string>& words, int ranks,
                              const std::vector<std::string>& replaced, const std::string& added);

// Without --threads, of which each host may have its own.
std::string options_for_all(const std::vector<std::string>& words);

}  // namespace train_gpt
