// The files that a run saves as it goes: checkpoints and the best model, beside training where there is a copy to write
// from.
#pragma once

#include <cstdint>

#include "commands/run/training_run.h"

namespace train_gpt {

// Collective. What is under way already is finished first. `goes_on`: there are steps left, beside which it can be
// written; otherwise it is there on return.
void save_checkpoint(TrainingRun& run, std::int64_t steps_taken, double loss, bool goes_on);
void save_best(TrainingRun& run, std::int64_t steps_taken, double validation_loss, bool goes_on);
// After each step, whose votes these are.
void go_on_saving(TrainingRun& run, const Votes& votes);
// Waits for what is under way.
void finish_saving(TrainingRun& run);

}  // namespace train_gpt
