#include "commands/run/run_plan.h"

#include <stdexcept>

#include "commands/cli/wording.h"
#include "commands/run/checkpoint_copies.h"

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
  if (session.is_timed()) return given_cost_model(given_costs(options, p), inputs.model, batch.seq_len, p);
  if (p == 1) return estimated_cost_model(inputs.model, batch.seq_len, p);  // nothing to choose
  session.together([&] {
    check_host_memory(smallest_plan(options, inputs.model, p, session.device()), session.host().members,
                      session.host_memory());
  });
  const Profile profile =
      measure_profile(session.device(), session.world(), p, inputs.model, batch.rows, batch.seq_len, {});
  return cost_model(profile, inputs.model, p, "measured at start-up");
}

// True if this host has room for the copies beside its ranks' plans (which are elsewhere if ranks compute on GPUs).
bool host_has_room(const Session& session, const Plan& plan) {
  constexpr std::int64_t kPartForCopies = 2;  // of the memory of a host whose ranks compute on GPUs
  std::int64_t copies = 0, plans = 0;
  for (const int member : session.host().members) {
    const auto place = static_cast<std::size_t>(member);
    const RankPlan& rank = plan.ranks[place % plan.ranks.size()];
    copies += copy_bytes_of(plan.request, rank, static_cast<int>(place / plan.ranks.size()));
    plans += rank.total_bytes();
  }
  if (session.on_gpus()) return copies <= session.memory_of_host() / kPartForCopies;
  return plans + copies <= session.memory_of_host();
}

// Plans copies of the state, from which checkpoints are written beside training, if all ranks have room. Collective.
void copy_where_it_fits(Session& session, const Options& options, RunPlan& plan) {
  const std::int64_t limit = session.on_gpus() ? 0 : options.pipeline.memory_limit;
  const bool fits = copies_fit(plan.plan(), limit) && host_has_room(session, plan.plan());
  std::vector<double> without(1, fits ? 0.0 : 1.0);
  session.world().all_reduce_host(without);
  if (without[0] == 0) {
    add_copies(plan.choice.plan);
  } else {
    plan.notice = without_copies(plan.plan());
  }
}

// A checkpoint of pipedream goes on with the ranks and the cut that it was written with: its numbers depend on them.
void keep_stages(const FoundCheckpoint& resumed, ChoiceRequest& open) {
  const Partition saved = resumed.manifest.stages();
  if (saved.empty()) return;
  if (static_cast<int>(saved.size()) != open.ranks) {
    throw std::invalid_argument("--resume " + resumed.folder + ": pipedream computes with other parameters on " +
                                counted(open.ranks, "rank") + " than on the " + std::to_string(saved.size()) +
                                " that the checkpoint has. Resume with as many, or begin a new run from the "
                                "checkpoint's model.bin with --init");
  }
  if (open.cut != ChoiceRequest::Cut::measured) return;
  open.cut = ChoiceRequest::Cut::list;
  open.partition = saved;
}

void check_stages(const FoundCheckpoint& resumed, const Partition& found) {
  const Partition saved = resumed.manifest.stages();
  if (saved.empty() || saved == found) return;
  const auto list = [](const Partition& units) {
    std::string text;
    for (const int one : units) text += (text.empty() ? "" : ",") + std::to_string(one);
    return text;
  };
  throw std::invalid_argument("--resume " + resumed.folder + ": --partition is " + list(found) +
                              ", but the checkpoint has " + list(saved) +
                              ", and pipedream computes with other parameters: leave the option out, or begin a new "
                              "run from the checkpoint's model.bin with --init");
}

}  // namespace

RunPlan plan_run(Session& session, const Options& options, const RunInputs& inputs) {
  RunPlan plan;
  plan.unit_costs = find_costs(session, options, inputs);
  session.together([&] {
    PlanRequest request = plan_request(options, inputs.model, inputs.named, session.device());
    request.training = options.command == Command::train;
    request.computes = !session.is_timed();
    request.replica_links = replica_links(options, inputs.layout.pipeline);
    ChoiceRequest open = choice_request(options, request, inputs.named, inputs.layout.pipeline, plan.unit_costs);
    open.device_bytes = session.memory_per_rank();
    const bool recompute = open.recompute == ChoiceRequest::Recompute::automatic;
    if (recompute && open.memory_limit == 0) open.memory_limit = open.device_bytes;
    keep_stages(inputs.resumed, open);
    plan.choice = choose(open);
    check_stages(inputs.resumed, plan.plan().request.partition);
    check_memory_limit(plan.plan(), open, options.pipeline.memory_limit);
    check_host_memory(plan.plan(), session.host().members, session.host_memory());
    if (session.on_gpus()) check_gpu_memory(plan.plan(), session.memory_per_rank());
  });
  if (options.command == Command::train && !session.is_timed()) copy_where_it_fits(session, options, plan);
  return plan;
}

}  // namespace train_gpt
