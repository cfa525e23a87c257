#include "pipeline/simulate/collectives.h"

#include <algorithm>

namespace train_gpt {

SharedStep with_collectives(const Schedule& schedule, const StageCosts& costs, const Collectives& collectives) {
  SimulateOptions options{.intervals = false, .channels = false, .bound_and_memory = false};
  const double alone = simulate(schedule, costs, options).makespan;
  options.collectives = &collectives;
  const double end = simulate(schedule, costs, options).step;
  return {.end = end, .exposed = std::max(0.0, end - alone)};
}

}  // namespace train_gpt
