// The old run that --overwrite replaces: first moved to DIR/overwritten, and removed when the new run has a checkpoint
// or is over.
#pragma once

#include <string>

namespace train_gpt {

// Moves the run that is in `folder` to folder/overwritten: its log, models, report and checkpoints, and nothing else.
// If an earlier run with --overwrite ended before it had a checkpoint, the run that it set aside stays there, and its
// own files are removed. Returns a line for people; empty: there was no run. Errors: std::runtime_error,
// std::invalid_argument if folder/overwritten holds something else.
std::string set_run_aside(const std::string& folder);

// To be called when the run in `folder` has a checkpoint, or is over.
void remove_overwritten(const std::string& folder);

}  // namespace train_gpt
