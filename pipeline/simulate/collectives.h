// Collectives among replicas in a simulated step: gradients are reduced (R) once they are complete, parameters are
// gathered (G) before they are needed. They go on beside the actions of their rank, one behind the other; what an
// action or the end of the step has to wait for is exposed. All replicas do the same at the same time, so that one
// pipeline stands for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

struct Collective {
  enum class Kind : std::uint8_t { reduce, gather };
  static constexpr std::size_t kAtTheEnd = std::numeric_limits<std::size_t>::max();
  Kind kind = Kind::reduce;
  int stage = 0;          // virtual stage
  std::size_t after = 0;  // issued once so many actions of the rank's list are done; 0: when the step begins
  double ahead = 0;       // milliseconds before the end of the last of those: it was through all that is needed
  std::size_t before = kAtTheEnd;  // complete before the action at this position begins
  double ms = 0;
  double bytes = 0;  // that the rank sends
};

// [rank], in the order in which they are issued: `after` ascends.
using Collectives = std::vector<std::vector<Collective>>;

// A step with collectives beside the same step without.
struct SharedStep {
  double end = 0.0;      // of the last action or collective, milliseconds since the first could start
  double exposed = 0.0;  // of it, beyond the makespan without collectives
  double share() const { return end > 0.0 ? exposed / end : 0.0; }
};
SharedStep with_collectives(const Schedule& schedule, const StageCosts& costs, const Collectives& collectives);

}  // namespace train_gpt
