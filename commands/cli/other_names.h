// Names that other trainers have for our options and values, so that their command lines are understood, or answered
// with advice.
#pragma once

#include <string>
#include <vector>

#include "commands/cli/options.h"

namespace train_gpt {

// "--Train_Data=A_b" is "--train-data=A_b": case and underscores of an option's name do not matter.
std::string canonical_option(const std::string& word);

// Other names of this option: {"lr"} for learning-rate. Never the name of another option of the same command.
std::vector<std::string> other_names_of(const std::string& option);

// Advice for an option that other trainers have and this one has not; empty for an unknown name.
std::string instead_of(const std::string& option);

// Our name for a schedule of PyTorch (ScheduleInterleaved1F1B) or for another spelling of ours (ZB_H1); any other name
// unchanged.
std::string canonical_schedule(const std::string& name);

// Replaces a name in `theirs`, whatever its case, by ours; otherwise returns the name in lower case.
struct Renaming {
  const char* theirs;
  const char* ours;
};
std::string renamed(const std::string& name, const std::vector<Renaming>& theirs);

}  // namespace train_gpt
