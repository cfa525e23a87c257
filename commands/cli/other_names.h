// Names that other trainers have for our options and values, so that a command line of theirs is understood, or
// answered.
#pragma once

#include <string>
#include <vector>

#include "commands/cli/options.h"

namespace train_gpt {

// "--Train_Data=A_b" is "--train-data=A_b": case and underscores of an option's name do not matter.
std::string canonical_option(const std::string& word);

// Other names of this option: {"lr"} of learning-rate. Never one of the same command's own names.
std::vector<std::string> other_names_of(const std::string& option);

// Advice for an option that exists elsewhere and not here; empty for an unknown name.
std::string instead_of(const std::string& option);

// Our name of a schedule of PyTorch (ScheduleInterleaved1F1B), or one of ours in another spelling (ZB_H1); any other
// name as it is.
std::string canonical_schedule(const std::string& name);

// Ours in place of a name in `theirs`, whatever its case; else the name in small letters.
struct Renaming {
  const char* theirs;
  const char* ours;
};
std::string renamed(const std::string& name, const std::vector<Renaming>& theirs);

}  // namespace train_gpt
