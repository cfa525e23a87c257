#include "pipeline/planner/choose_schedule.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "model/boundary.h"
#include "pipeline/planner/live_micro_batches.h"
#include "pipeline/planner/partition_search.h"
#include "pipeline/planner/recompute.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/search/search.h"

namespace train_gpt {
namespace {

// Parameter, gradient and moments; the half precision copy.
double state_bytes(const PlanRequest& request, int unit) {
  std::vector<bool> held(static_cast<std::size_t>(unit_count(request.model)), false);
  held[static_cast<std::size_t>(unit)] = true;
  const ArenaLayout layout = arena_layout(request.model, held, request.optimizer);
  constexpr std::int64_t kFloat = sizeof(float);
  std::int64_t bytes = layout.elements * kFloat;
  if (request.precision == Precision::bf16) bytes += layout.elements * element_size(request.precision);
  if (request.spare_parameters) bytes += layout.elements * kFloat;
  if (request.flushless()) {
    bytes += layout.elements * element_size(request.precision);
    if (request.error_feedback) bytes += layout.elements * kFloat;
    bytes += (request.gradient_buffers - 1) * layout.gradient_elements * kFloat;
  }
  if (request.training) bytes += (layout.gradient_elements + layout.elements + layout.second_elements) * kFloat;
  return static_cast<double>(bytes);
}

// The memory limit in live activations per rank, and the fraction that stays between I and W.
struct LiveLimit {
  std::vector<double> limit;
  double weight_memory = 1;
};

LiveLimit live_limit(const ChoiceRequest& request, const Plan& plan) {
  LiveLimit limit;
  limit.weight_memory = 0;
  for (const RankPlan& rank : plan.ranks) {
    std::int64_t fixed = rank.total_bytes();  // parameters, messages and so on: what is not by live micro-batch
    for (const Pool& pool : rank.pools) fixed -= pool.slots * pool.slot_bytes;
    double live = 0, kept = 0;
    for (const StagePlan& stage : rank.stages) {
      live += static_cast<double>(stage.bytes.forward_to_input + stage.bytes.forward_to_weight);
      kept += static_cast<double>(stage.bytes.forward_to_weight + stage.bytes.input_to_weight);
    }
    limit.limit.push_back(live > 0 ? static_cast<double>(request.limit_of(limit.limit.size()) - fixed) / live : 1.0);
    if (live > 0) limit.weight_memory = std::max(limit.weight_memory, std::min(1.0, kept / live));
  }
  return limit;
}

Costs to_costs(const StageCosts& stages, const ChoiceRequest& request, const PlanRequest& plan) {
  Costs costs = request.costs.links;
  costs.forward = stages.forward;
  costs.input = stages.input;
  costs.weight = stages.weight;
  costs.messages = message_sizes(plan);
  return costs;
}

}  // namespace

std::vector<MessageSize> message_sizes(const PlanRequest& request) {
  const BoundarySizes sizes{request.batch.rows, request.batch.seq_len, request.precision};
  std::vector<MessageSize> messages;
  int unit = 0;
  for (const int units : request.partition) {
    MessageSize& size = messages.emplace_back();
    if (unit > 0) {
      const Boundary forward = forward_boundary(request.model, sizes, unit, ForwardUse::training);
      size.activation = static_cast<double>(forward.bytes());
      size.gradient = static_cast<double>(backward_boundary(request.model, sizes, unit).bytes());
    }
    unit += units;
  }
  return messages;
}

std::vector<Schedule> named_candidates(const ChoiceRequest& request) {
  if (request.cut == ChoiceRequest::Cut::list || request.recompute == ChoiceRequest::Recompute::list) {
    throw std::invalid_argument(
        "--schedule auto chooses how many virtual stages there are: lists per stage (--partition, --recompute) need a "
        "schedule that is named");
  }
  std::vector<Schedule> schedules;
  for (const std::string& name : schedule_names()) {
    for (const int v : request.chunks) {
      if (takes_chunks(name) ? v == 1 : v != default_chunks(name)) continue;  // loops of 1 have names of their own
      const ScheduleRequest wanted{
          .name = name, .ranks = request.ranks, .micro_batches = request.base.batch.micro_batches, .chunks = v};
      if (violation(wanted)) continue;
      Schedule schedule = make_schedule(wanted);
      const bool one_copy = schedule.placement.kind != Placement::Kind::bidirectional;
      if (one_copy && schedule.placement.depth() <= unit_count(request.base.model)) {
        schedules.push_back(std::move(schedule));
      }
    }
  }
  return schedules;
}

std::optional<FoundSchedule> search_like(const ChoiceRequest& request, const Choice& choice) {
  const PlanRequest& plan = choice.plan.request;
  const Placement& placement = plan.schedule.placement;
  SearchRequest search;
  search.ranks = request.ranks;
  search.micro_batches = plan.batch.micro_batches;
  search.progress = request.search_progress;
  search.max_virtual_stages = unit_count(plan.model);
  search.v_shape = placement.kind == Placement::Kind::v_shape;
  search.loop_chunks = search.v_shape ? std::vector<int>{} : std::vector<int>{placement.chunks};
  search.parts = request.memory_limit > 0;
  search.costs = request.costs.given ? *request.costs.given : to_costs(choice.costs, request, plan);
  if (request.memory_limit > 0) {
    const LiveLimit limit = live_limit(request, choice.plan);
    if (*std::min_element(limit.limit.begin(), limit.limit.end()) < 1) return std::nullopt;
    search.memory_limit = limit.limit;
    search.weight_memory = limit.weight_memory;
  }
  try {
    SearchResult result = search_schedule(search);
    return FoundSchedule{std::move(result.schedule), result.name + ": " + result.reason, result.simulation.makespan};
  } catch (const std::invalid_argument&) {  // nothing fits, or the costs are those of another placement
    return std::nullopt;
  }
}

UnitMemory unit_memory(const PlanRequest& request) {
  const LiveMicroBatches live = live_micro_batches(request.schedule);
  const int units = unit_count(request.model);
  UnitMemory memory;
  memory.bytes.assign(live.forward_to_input.size(), std::vector<double>(static_cast<std::size_t>(units), 0.0));
  for (int u = 0; u < units; ++u) {
    const StageBytes bytes = stage_bytes(unit_shape(request, u, false), request.precision);
    const double state = state_bytes(request, u);
    for (std::size_t s = 0; s < memory.bytes.size(); ++s) {
      memory.bytes[s][static_cast<std::size_t>(u)] =
          state + static_cast<double>(bytes.forward_to_input) * live.forward_to_input[s] +
          static_cast<double>(bytes.forward_to_weight) * live.forward_to_weight[s] +
          static_cast<double>(bytes.input_to_weight) * live.input_to_weight[s];
    }
  }
  return memory;
}

std::vector<double> counted_bytes(const PlanRequest& request, const UnitMemory& memory) {
  const Placement& placement = request.schedule.placement;
  const std::vector<UnitRange> ranges = unit_ranges(placement, request.partition);
  std::vector<double> bytes(static_cast<std::size_t>(placement.ranks), 0.0);
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const Placement::VirtualStage& stage = placement.stages[s];
    for (int u = ranges[s].first; u < ranges[s].last; ++u) {
      bytes[static_cast<std::size_t>(stage.rank)] +=
          memory.bytes[static_cast<std::size_t>(stage.model_stage)][static_cast<std::size_t>(u)];
    }
  }
  return bytes;
}

}  // namespace train_gpt
