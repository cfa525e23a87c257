// Reductions over replicas in a simulated step: a rank reduces the gradients of a virtual stage, in parts, while its
// last W goes on, one part after the other, beside the actions that follow (pipeline/plan/lowering.h). The part that
// still runs when all ranks have ended their lists is exposed.
#pragma once

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

struct ReducedStep {
  double end = 0.0;      // of the last reduction, milliseconds since the first action started
  double exposed = 0.0;  // the part of it beyond the makespan
  double share() const { return end > 0.0 ? exposed / end : 0.0; }
};

// Parts into which the gradients of a stage are cut, at most: runs of units. The last has no W that hides it; each is a
// message more.
inline constexpr int kReductionParts = 4;

// When a stage's gradients leave: each of kReductionParts parts once the last W is through it, or all at the end of
// that W, or at the end of the rank's list.
enum class ReducedAt : std::uint8_t { part, stage, list };

// `ms`: for all gradients of a rank, of which each of its stages has an equal part. `simulation` has its intervals.
ReducedStep reduce(const Schedule& schedule, const StageCosts& costs, const Simulation& simulation, double ms,
                   ReducedAt at);

// The part of an action's time that is a W: 1 of a W, 0 of an F or I.
double weight_share(const Action& action, const StageCosts& costs);

}  // namespace train_gpt
