// The files that a run saves while it lives: checkpoints and the best model, beside training if there is a copy to
// write from.
#pragma once

#include <cstdint>

#include "commands/run/training_run.h"

namespace train_gpt {

// Collective. Finishes a save that is under way first. `goes_on`: there are steps left, beside which it can be written;
// otherwise it is complete on return.
void save_checkpoint(TrainingRun& run, std::int64_t steps_taken, double loss, bool goes_on);
void save_best(TrainingRun& run, std::int64_t steps_taken, double validation_loss, bool goes_on);
// To be called after each step, with its votes.
void go_on_saving(TrainingRun& run, const Votes& votes);
// Waits for a save that is under way.
void finish_saving(TrainingRun& run);

}  // namespace train_gpt
