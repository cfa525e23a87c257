// The decisions that are made before a run: from its inputs and the costs of units to schedule, partition and every
// rank's memory.
#pragma once

#include "commands/run/inputs.h"
#include "pipeline/planner/choose.h"

namespace train_gpt {

struct RunPlan {
  CostModel unit_costs;
  Choice choice;
  std::string notice;  // for people; empty: none

  const Plan& plan() const { return choice.plan; }
  const Schedule& schedule() const { return choice.plan.request.schedule; }
};

// Measures units if their costs are not given. Collective; throws as Session::together, also if the plan needs more
// memory than there is.
RunPlan plan_run(Session& session, const Options& options, const RunInputs& inputs);

}  // namespace train_gpt
