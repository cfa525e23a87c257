#include "pipeline/planner/layouts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "pipeline/plan/plan_bytes.h"
#include "pipeline/plan/replica_collectives.h"
#include "pipeline/planner/choose_schedule.h"
#include "pipeline/planner/layout_candidates.h"
#include "pipeline/planner/recompute.h"

namespace train_gpt {
namespace {

using Key = std::tuple<int, int>;  // of a row of the table: p (and so d), ZeRO

Key key_of(const RankLayout& layout) { return {layout.ranks, layout.zero}; }

// What is asked of ZeRO has to be there: stages that are all under way at once have their gradients, and stages that
// are in use from the first action to the last their parameters, whole all the time.
bool gains_by_zero(const Plan& plan) {
  const auto has = [&](auto windows) {
    return std::ranges::any_of(plan.ranks, [&](const RankPlan& rank) { return (rank.*windows).has_value(); });
  };
  if (plan.request.zero == 2) return has(&RankPlan::gradient_windows);
  return plan.request.zero < 3 || has(&RankPlan::parameter_windows);
}

int recomputed_units(const PlanRequest& plan) { return static_cast<int>(std::ranges::count(plan.recompute, true)); }

Schedule schedule_of(const RankLayout& layout) {
  return make_schedule(
      {.name = layout.schedule, .ranks = layout.ranks, .micro_batches = layout.micro_batches, .chunks = layout.chunks});
}

// Bytes that each rank of a pipeline sends to others of it in a step.
std::vector<double> message_bytes(const PlanRequest& plan, const StageCosts& costs) {
  const Placement& placement = plan.schedule.placement;
  std::vector<double> sent(static_cast<std::size_t>(placement.ranks), 0.0);
  for (std::size_t s = 0; s < placement.stages.size(); ++s) {
    const Placement::VirtualStage& stage = placement.stages[s];
    if (stage.previous < 0) continue;
    const Placement::VirtualStage& before = placement.stages[static_cast<std::size_t>(stage.previous)];
    sent[static_cast<std::size_t>(before.rank)] += plan.batch.micro_batches * costs.activation[s].bytes;
    sent[static_cast<std::size_t>(stage.rank)] += plan.batch.micro_batches * costs.gradient[s].bytes;
  }
  return sent;
}

}  // namespace

UnitCosts scaled(UnitCosts costs, double factor) {
  for (std::vector<double>* pass : {&costs.forward, &costs.input, &costs.weight}) {
    for (double& ms : *pass) ms *= factor;
  }
  PassCosts& head = costs.streamed_head;
  for (double* ms : {&head.forward, &head.input, &head.weight}) *ms *= factor;
  return costs;
}

UnitCosts costs_at_speed(const ModelConfig& model, std::int64_t seq_len, double flops_per_second) {
  double third = 0;
  for (int u = 0; u < unit_count(model); ++u) third += third_of_flops_per_token(model, seq_len, u);
  // The estimate's ms are those of a machine that does all of these in one.
  const double ms = 1000 * third * static_cast<double>(seq_len) / flops_per_second;
  return scaled(estimated_unit_costs(model, seq_len, 1), ms);
}

struct LayoutSearch::State {
  explicit State(LayoutRequest wanted) : request(std::move(wanted)) {}

  // A plan as far as it is known: it does not depend on links.
  struct Planned {
    PlanRequest request;
    bool gains = false;  // ZeRO does what it is asked for
    bool fits = false;
    std::int64_t bytes = 0;
  };

  struct Candidate {
    RankLayout layout;
    double bound = 0;  // milliseconds, of its step
    enum class Known : std::uint8_t { work, alone, step } known = Known::work;
    PlannedLayout planned = {};  // of Known::step
    // The smallest bound first; among equal ones what is known best, then what moves less, then needs less memory.
    bool operator<(const Candidate& other) const {
      const auto order = [](const Candidate& it) {
        return std::make_tuple(it.bound, -static_cast<int>(it.known), it.layout.zero, it.planned.bytes,
                               it.planned.sent_bytes);
      };
      return order(other) < order(*this);
    }
  };

  PlanRequest plan_request(const RankLayout& layout) const;
  const Planned& planned(const RankLayout& layout);
  StageCosts costs(const PlanRequest& plan, const Costs& links) const;
  const Partition& cut(const RankLayout& layout);
  double alone(const RankLayout& layout, const Cluster& cluster);
  std::optional<PlannedLayout> step(const RankLayout& layout, const Cluster& cluster);
  Grid grid(const RankLayout& layout) const { return {layout.ranks, layout.replicas, layout.order}; }
  Costs links(const RankLayout& layout, const Cluster& cluster) const {
    Costs costs;
    set_links(costs, cluster, grid(layout));
    return costs;
  }
  void note_refused(const RankLayout& layout, const Planned& plan);
  bool is_hopeless(RankLayout layout);
  void plan_smallest(const Cluster& cluster);
  const std::vector<Candidate>& candidates(const Cluster& cluster);

  LayoutRequest request;
  Counts counts;
  std::optional<PlannedLayout> closest;
  std::map<std::tuple<int, int, Placement::Kind>, Partition> cuts;
  std::map<std::tuple<int, int, int, std::string, std::int64_t>, Planned> plans;
  std::map<std::tuple<int, int, std::string>, bool> hopeless;
  std::map<int, std::vector<Candidate>> known;  // by ranks of a host: all candidates, their bound that of their work
};

const Partition& LayoutSearch::State::cut(const RankLayout& layout) {
  const auto [entry, fresh] = cuts.try_emplace({layout.ranks, layout.chunks, placement_kind(layout.schedule)});
  if (fresh) entry->second = layout_cut(request, layout);
  return entry->second;
}

PlanRequest LayoutSearch::State::plan_request(const RankLayout& layout) const {
  PlanRequest plan = request.base;
  plan.batch.rows = layout.rows;
  plan.batch.micro_batches = layout.micro_batches;
  plan.batch.replicas = plan.batch.groups = layout.replicas;
  plan.schedule = schedule_of(layout);
  plan.partition = layout.partition;
  plan.zero = layout.zero;
  plan.memory_limit = request.memory_limit;
  if (request.workspace_bytes) plan.workspace_bytes = request.workspace_bytes(plan.batch);
  const StageCosts stages = costs(plan, Costs{});  // for the lengths of the message queues
  plan.costs.forward = stages.forward;
  plan.costs.input = stages.input;
  plan.costs.weight = stages.weight;
  return plan;
}

StageCosts LayoutSearch::State::costs(const PlanRequest& plan, const Costs& links) const {
  StageCosts costs = stage_costs(scaled(request.row, static_cast<double>(plan.batch.rows)), plan.head,
                                 plan.schedule.placement, plan.partition, {}, plan.recompute);
  Costs hops = links;
  hops.messages = message_sizes(plan);
  set_hops(costs, hops, plan.schedule.placement);
  return costs;
}

// Milliseconds of a step without collectives.
double LayoutSearch::State::alone(const RankLayout& layout, const Cluster& cluster) {
  PlanRequest plan = request.base;
  plan.batch.rows = layout.rows;
  plan.schedule = schedule_of(layout);
  plan.partition = layout.partition;
  ++counts.simulated;
  return simulate(plan.schedule, costs(plan, links(layout, cluster)),
                  {.intervals = false, .channels = false, .bound_and_memory = false})
      .step;
}

const LayoutSearch::State::Planned& LayoutSearch::State::planned(const RankLayout& layout) {
  const auto [entry, fresh] =
      plans.try_emplace({layout.ranks, layout.zero, layout.chunks, layout.schedule, layout.rows});
  Planned& plan = entry->second;
  if (!fresh) return plan;
  ++counts.planned;
  plan.request = plan_request(layout);
  const Plan first = make_plan(plan.request);
  plan.bytes = largest_rank(first);
  plan.gains = gains_by_zero(first);
  const std::int64_t limit = request.memory_limit;
  plan.fits = limit == 0 || plan.bytes <= limit;
  if (plan.fits) return plan;
  if (request.held.may_recompute) {
    const auto units = recompute_to_fit(plan.request, std::vector(first.ranks.size(), limit));
    plan.fits = units.has_value();
    plan.request.recompute = units.value_or(std::vector<bool>(unit_count(request.base.model), true));
    plan.bytes = largest_rank(make_plan(plan.request));
  }
  if (!plan.fits) note_refused(layout, plan);
  return plan;
}

// No layout of these ranks with this schedule fits if not even that one does which needs least: most is shared out, and
// micro-batches are smallest.
bool LayoutSearch::State::is_hopeless(RankLayout layout) {
  if (request.memory_limit == 0) return false;
  if (least_state_bytes(request, layout) > static_cast<double>(request.memory_limit)) return true;
  const auto [entry, fresh] = hopeless.try_emplace({layout.ranks, layout.chunks, layout.schedule}, false);
  if (!fresh) return entry->second;
  const std::int64_t rows_of_replica = layout.rows * layout.micro_batches;
  layout.zero = layout.replicas > 1 ? request.held.zero.value_or(3) : 0;
  layout.rows = smallest_micro_batch(request);
  layout.micro_batches = static_cast<int>(rows_of_replica / layout.rows);
  const ScheduleRequest smallest{
      .name = layout.schedule, .ranks = layout.ranks, .micro_batches = layout.micro_batches, .chunks = layout.chunks};
  return entry->second = !violation(smallest) && !planned(layout).fits;
}

void LayoutSearch::State::note_refused(const RankLayout& layout, const Planned& plan) {
  if (closest && closest->bytes <= plan.bytes) return;
  closest = PlannedLayout{.layout = layout, .bytes = plan.bytes, .units = unit_count(request.base.model)};
  closest->recomputed_units = recomputed_units(plan.request);
}

// The whole of it; nothing where it does not fit.
std::optional<PlannedLayout> LayoutSearch::State::step(const RankLayout& layout, const Cluster& cluster) {
  const Planned& of_layout = planned(layout);
  if (!of_layout.gains || !of_layout.fits) return std::nullopt;
  const Plan plan = make_plan(of_layout.request);
  std::vector<LinkCost> rings;
  for (int r = 0; r < layout.ranks; ++r) rings.push_back(replica_link(cluster, grid(layout), r));
  const StageCosts stages = costs(of_layout.request, links(layout, cluster));
  const Collectives collectives = replica_collectives(plan, rings, stages);
  SimulateOptions options{.intervals = false, .channels = false, .bound_and_memory = false};
  ++counts.simulated;
  const double alone = simulate(of_layout.request.schedule, stages, options).step;
  options.collectives = &collectives;
  const Simulation shared = simulate(of_layout.request.schedule, stages, options);
  PlannedLayout result{.layout = layout, .step_ms = shared.step, .exposed_ms = shared.step - alone};
  double busy = 0;
  for (const double of_rank : shared.busy) busy += of_rank;
  result.idle = 1 - busy / (layout.ranks * shared.step);
  result.bytes = of_layout.bytes;
  std::vector<double> sent = message_bytes(of_layout.request, stages);
  for (std::size_t r = 0; r < sent.size(); ++r) {
    for (const Collective& one : collectives[r]) sent[r] += one.bytes;
    result.sent_bytes = std::max(result.sent_bytes, sent[r]);
  }
  result.recomputed_units = recomputed_units(plan.request);
  result.units = unit_count(request.base.model);
  return result;
}

LayoutSearch::LayoutSearch(LayoutRequest request) : state_(std::make_unique<State>(std::move(request))) {}
LayoutSearch::~LayoutSearch() = default;

const LayoutSearch::Counts& LayoutSearch::counts() const { return state_->counts; }
const std::optional<PlannedLayout>& LayoutSearch::closest() const { return state_->closest; }

const std::vector<LayoutSearch::State::Candidate>& LayoutSearch::State::candidates(const Cluster& cluster) {
  const auto [entry, fresh] = known.try_emplace(cluster.ranks_per_host);
  if (!fresh) return entry->second;
  for (RankLayout& layout : layout_candidates(request, cluster)) {
    layout.partition = cut(layout);
    const double least = least_step(request, layout);
    entry->second.push_back({.layout = std::move(layout), .bound = least});
  }
  counts.candidates = entry->second.size();
  return entry->second;
}

// Nothing was worth a plan: those of which about the least is known to be needed, with most shared out.
void LayoutSearch::State::plan_smallest(const Cluster& cluster) {
  constexpr double kAbout = 1.25;
  const std::vector<Candidate>& all = candidates(cluster);
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& it : all) least = std::min(least, least_state_bytes(request, it.layout));
  for (const Candidate& it : all) {
    const bool is_small = it.layout.rows == smallest_micro_batch(request);
    if (is_small && least_state_bytes(request, it.layout) <= kAbout * least) planned(it.layout);
  }
}

std::vector<PlannedLayout> LayoutSearch::best(const Cluster& cluster, LayoutKind kind, std::size_t count) {
  using Candidate = State::Candidate;
  using Known = Candidate::Known;
  std::priority_queue<Candidate> waiting;
  for (const Candidate& candidate : state_->candidates(cluster)) {
    const bool wanted = kind == LayoutKind::any || (kind == LayoutKind::fsdp && candidate.layout.is_fsdp()) ||
                        (kind == LayoutKind::pipeline && candidate.layout.is_pipeline());
    if (wanted) waiting.push(candidate);
  }
  std::vector<PlannedLayout> found;
  std::set<Key> rows;
  while (!waiting.empty() && found.size() < count) {
    Candidate next = waiting.top();
    waiting.pop();
    if (rows.contains(key_of(next.layout))) continue;
    switch (next.known) {
      case Known::work:
        if (state_->is_hopeless(next.layout)) break;
        next.known = Known::alone;
        next.bound = std::max(next.bound, state_->alone(next.layout, cluster));
        waiting.push(std::move(next));
        break;
      case Known::alone:
        if (auto planned = state_->step(next.layout, cluster)) {
          next.known = Known::step;
          next.bound = planned->step_ms;
          next.planned = std::move(*planned);
          waiting.push(std::move(next));
        }
        break;
      case Known::step:
        rows.insert(key_of(next.layout));
        found.push_back(std::move(next.planned));
        break;
    }
  }
  if (found.empty() && !state_->closest) state_->plan_smallest(cluster);
  return found;
}

LayoutSearch::Turn LayoutSearch::turn(Cluster cluster) {
  constexpr double kSlowest = 1e-3, kFastest = 1e5, kWithin = 1.01;  // GB/s
  const bool one_host = cluster.ranks_per_host == 0 || cluster.ranks_per_host >= state_->request.ranks;
  double& bandwidth = one_host ? cluster.inside.bandwidth : cluster.between.bandwidth;
  Turn turn;
  const auto fsdp_is_faster = [&](double at) {
    bandwidth = at;
    const std::vector<PlannedLayout> fsdp = best(cluster, LayoutKind::fsdp, 1);
    const std::vector<PlannedLayout> pipeline = best(cluster, LayoutKind::pipeline, 1);
    if (!fsdp.empty()) turn.fsdp = fsdp.front();
    if (!pipeline.empty()) turn.pipeline = pipeline.front();
    return turn.fsdp && (!turn.pipeline || turn.fsdp->step_ms < turn.pipeline->step_ms);
  };
  double slower = kSlowest, faster = kFastest;
  if (!fsdp_is_faster(faster)) return turn;
  if (!turn.pipeline || fsdp_is_faster(slower)) {
    turn.at = Turn::At::always;
    return turn;
  }
  while (faster > kWithin * slower) {
    const double between = std::sqrt(slower * faster);
    (fsdp_is_faster(between) ? faster : slower) = between;
  }
  fsdp_is_faster(faster);
  turn.at = Turn::At::bandwidth;
  turn.bandwidth = faster;
  return turn;
}

}  // namespace train_gpt
