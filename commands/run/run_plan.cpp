#include "commands/run/run_plan.h"

#include <algorithm>

#include "pipeline/plan/plan_bytes.h"

namespace train_gpt {
namespace {

// Costs of the units, before anything is planned: from --profile, --cost-* or a quick measurement; collective.
CostModel find_costs(Session& session, const Options& options, const RunInputs& inputs) {
  const int p = inputs.layout.pipeline;
  const BatchShape batch = batch_shape(options, inputs.named);
  const std::string& path = options.pipeline.profile;
  if (!path.empty()) {
    CostModel costs;
    session.together([&] {
      const Profile profile = load_profile(path);
      check_profile(profile, path,
                    profile_sizes(inputs.model, batch.rows, batch.seq_len, session.device().precision()));
      costs = cost_model(profile, inputs.model, p, "of " + path);
    });
    return costs;
  }
  if (session.is_timed()) return given_cost_model(options.costs.costs, inputs.model, batch.seq_len, p);
  if (p == 1) return estimated_cost_model(inputs.model, batch.seq_len, p);  // nothing is to be chosen
  session.together([&] {
    check_host_memory(smallest_plan(options, inputs.model, p, session.device()), session.host().members,
                      session.host_memory());
  });
  const Profile profile =
      measure_profile(session.device(), session.world(), p, inputs.model, batch.rows, batch.seq_len, {});
  return cost_model(profile, inputs.model, p, "measured at start-up");
}

// Whether every rank of this host may have a copy of its parameters and moments beside its plan.
bool copies_fit(const Session& session, const Plan& plan, std::int64_t memory_limit) {
  constexpr std::int64_t kPartForCopies = 2;  // of the memory of a host whose ranks compute on GPUs
  std::int64_t copies = 0, plans = 0;
  for (const int member : session.host().members) {
    const RankPlan& rank = plan.ranks[static_cast<std::size_t>(member) % plan.ranks.size()];
    copies += copy_bytes_of(rank);
    plans += rank.total_bytes();
    if (session.on_gpus() || memory_limit == 0) continue;
    if (rank.total_bytes() + copy_bytes_of(rank) > memory_limit) return false;
  }
  if (session.on_gpus()) return copies <= session.memory_of_host() / kPartForCopies;
  return plans + copies <= session.memory_of_host();
}

// A copy of the state, from which checkpoints are written beside training, where all ranks have room for it.
// Collective.
void add_copies(Session& session, const Options& options, RunPlan& plan) {
  if (plan.plan().request.flushless()) {
    plan.notice = "training waits while checkpoints are written: without a flush they hold two sets of parameters";
    return;
  }
  std::vector<double> without(1, copies_fit(session, plan.plan(), options.pipeline.memory_limit) ? 0.0 : 1.0);
  session.world().all_reduce_host(without);
  std::int64_t most = 0;
  for (RankPlan& rank : plan.choice.plan.ranks) {
    most = std::max(most, copy_bytes_of(rank));
    if (without[0] == 0) rank.copy_bytes = copy_bytes_of(rank);
  }
  if (without[0] == 0) return;
  plan.notice =
      "training waits while checkpoints are written: a copy of parameters and moments beside the plan, from "
      "which they could be written meanwhile, would take up to " +
      format_bytes(most) + " of a rank, more than there is";
}

}  // namespace

RunPlan plan_run(Session& session, const Options& options, const RunInputs& inputs) {
  RunPlan plan;
  plan.unit_costs = find_costs(session, options, inputs);
  session.together([&] {
    PlanRequest request = plan_request(options, inputs.model, inputs.named, session.device());
    request.training = options.command == Command::train;
    request.computes = !session.is_timed();
    ChoiceRequest open = choice_request(options, request, inputs.named, inputs.layout.pipeline, plan.unit_costs);
    open.device_bytes = session.memory_per_rank();
    const bool recompute = open.recompute == ChoiceRequest::Recompute::automatic;
    if (recompute && open.memory_limit == 0) open.memory_limit = open.device_bytes;
    plan.choice = choose(open);
    check_memory_limit(plan.plan(), open, options.pipeline.memory_limit);
    check_host_memory(plan.plan(), session.host().members, session.host_memory());
    if (session.on_gpus()) check_gpu_memory(plan.plan(), session.memory_per_rank());
  });
  if (options.command == Command::train && !session.is_timed()) add_copies(session, options, plan);
  return plan;
}

}  // namespace train_gpt
