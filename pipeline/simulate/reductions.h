// Reductions over replicas in a simulated step: a rank reduces the gradients of a virtual stage as soon as its last W
// is done, one stage after the other, beside the actions that follow (pipeline/plan/lowering.h). The part that still
// runs when all ranks have ended their lists is exposed.
#pragma once

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

struct ReducedStep {
  double end = 0.0;      // of the last reduction, milliseconds since the first action started
  double exposed = 0.0;  // the part of it beyond the makespan
  double share() const { return end > 0.0 ? exposed / end : 0.0; }
};

enum class ReducedAt : std::uint8_t { stage, list };  // at the end of each stage, or of the rank's list

// `ms`: for all gradients of a rank, of which each of its stages has an equal part. `simulation` has its intervals.
ReducedStep reduce(const Schedule& schedule, const Simulation& simulation, double ms, ReducedAt at);

}  // namespace train_gpt
