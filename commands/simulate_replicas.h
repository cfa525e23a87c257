// What replicas exchange in a simulated step, from the options of `train_gpt simulate`.
#pragma once

#include <string>

#include "commands/cli/options.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/collectives.h"

namespace train_gpt {

// --data-parallel with the links of a cluster.
bool has_replicas(const Options& options);

struct SharedSchedule {
  SharedStep step;
  std::string remark;  // a line for people
};

// `costs`: of the schedule's stages. Throws std::invalid_argument if the model has fewer units than stages.
SharedSchedule simulate_replicas(const Options& options, const Schedule& schedule, const StageCosts& costs);

}  // namespace train_gpt
