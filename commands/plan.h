// `train_gpt plan`: everything short of training, without MPI and for machines that one does not have.
#pragma once

#include "commands/cli/options.h"

namespace train_gpt {

// Prints partition, schedule, memory and prediction, and as its last line the plan event of log.jsonl. Returns the exit
// status; throws std::invalid_argument where training would refuse.
int run_plan(const Options& options);

}  // namespace train_gpt
