// What the replicas of a planned step exchange, as collectives that the simulator and the timed device give their time:
// the lowered reductions (R) and gathers (G) of a plan, with their bytes. Sums of the two ends of a tied embedding and
// of mirrored copies are not among them: they are between ranks of one pipeline.
#pragma once

#include <optional>
#include <vector>

#include "pipeline/plan/execution_plan.h"
#include "pipeline/plan/lowering.h"
#include "pipeline/simulate/cluster.h"
#include "pipeline/simulate/collectives.h"

namespace train_gpt {

// Nothing where replicas exchange nothing. `link`: of the ring of the rank's replicas.
std::optional<Collective> collective_of(const Plan& plan, int rank, const LoweredAction& action, const LinkCost& link);

// `links`: [rank]. Gathers behind the update of the step before are issued when the step begins.
Collectives replica_collectives(const Plan& plan, const std::vector<LinkCost>& links);

}  // namespace train_gpt
