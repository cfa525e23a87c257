// What is decided before a run: from its inputs and what units cost to schedule, partition and memory of every rank.
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

// Measures units where nothing else says what they cost. Collective; throws as Session::together, also where the plan
// needs more memory than there is.
RunPlan plan_run(Session& session, const Options& options, const RunInputs& inputs);

}  // namespace train_gpt
