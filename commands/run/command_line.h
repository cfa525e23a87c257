// The command line of this process, as the system has it.
#pragma once

#include <string>
#include <vector>

namespace train_gpt {

// The program's name first.
std::vector<std::string> own_command_line();

// The shell command that continues a run of this command line on this number of ranks: with `--output FOLDER --resume
// latest` in place of its own --output and --resume.
std::string command_that_goes_on(const std::vector<std::string>& words, int ranks, const std::string& folder);

// The command that starts that run with other options, in a folder of its own: without the options `replaced`, and with
// `added`, such as "--schedule zb-v".
std::string command_otherwise(const std::vector<std::string>& words, int ranks,
                              const std::vector<std::string>& replaced, const std::string& added);

// The options without --threads, which may differ between hosts.
std::string options_for_all(const std::vector<std::string>& words);

}  // namespace train_gpt
