// What --overwrite gives up: moved to DIR/overwritten at first, and removed when the new run has left something itself.
#pragma once

#include <string>

namespace train_gpt {

// Moves the run that is in `folder` to folder/overwritten: its log, models, report and checkpoints, and nothing else.
// Where a run that was to overwrite ended before it had anything, what that one set aside stays, and its own files are
// removed. Returns a line for people; empty: there was no run. Errors: std::runtime_error, std::invalid_argument where
// folder/overwritten holds something else.
std::string set_run_aside(const std::string& folder);

// The run in `folder` has a checkpoint, or is over.
void remove_overwritten(const std::string& folder);

}  // namespace train_gpt
