#include "pipeline/choose_schedule.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "pipeline/partition_search.h"
#include "pipeline/schedule_catalog.h"
#include "pipeline/search.h"

namespace train_gpt {
namespace {

// Slots of boundary tensors that a rank may need, for a first estimate; the plan counts them.
constexpr std::int64_t kMessageSlots = 12;

StageShape unit_shape(const PlanRequest& request, int unit, bool recompute) {
  StageShape shape;
  shape.model = request.model;
  shape.first_unit = unit;
  shape.last_unit = unit + 1;
  shape.B = request.batch.rows;
  shape.T = request.batch.seq_len;
  shape.head = request.head;
  shape.recompute = {recompute};
  return shape;
}

// Parameter, gradient and two moments; the half precision copy.
double state_bytes(const PlanRequest& request, int unit) {
  std::vector<bool> held(static_cast<std::size_t>(unit_count(request.model)), false);
  held[static_cast<std::size_t>(unit)] = true;
  const ArenaLayout layout = arena_layout(request.model, held);
  constexpr std::int64_t kFloat = sizeof(float);
  std::int64_t bytes = layout.elements * kFloat;
  if (request.precision == Precision::bf16) bytes += layout.elements * element_size(request.precision);
  if (request.spare_parameters) bytes += layout.elements * kFloat;
  if (request.training) bytes += layout.gradient_elements * kFloat + 2 * layout.elements * kFloat;
  return static_cast<double>(bytes);
}

// Micro-batches that are live at once in each model stage, and that wait for their W.
struct Live {
  std::vector<int> forward_to_input, forward_to_weight, input_to_weight;
};

Live live_of(const Schedule& schedule) {
  const auto depth = static_cast<std::size_t>(schedule.placement.depth());
  Live most{std::vector<int>(depth, 0), std::vector<int>(depth, 0), std::vector<int>(depth, 0)};
  struct Count {
    int to_input = 0, to_weight = 0, pending = 0;
  };
  std::vector<Count> now(schedule.placement.stages.size());
  for (const std::vector<Action>& list : schedule.lists) {
    for (const Action& action : list) {
      const auto s = static_cast<std::size_t>(action.stage);
      const auto position = static_cast<std::size_t>(schedule.placement.stages[s].model_stage);
      Count& count = now[s];
      if (action.op == Op::forward) {
        ++count.to_input;
        ++count.to_weight;
      } else if (action.op != Op::backward_weight) {
        ++count.pending;
      }
      most.forward_to_input[position] = std::max(most.forward_to_input[position], count.to_input);
      most.forward_to_weight[position] = std::max(most.forward_to_weight[position], count.to_weight);
      most.input_to_weight[position] = std::max(most.input_to_weight[position], count.pending);
      if (action.op == Op::backward || action.op == Op::backward_input) --count.to_input;
      if (action.op == Op::backward || action.op == Op::backward_weight) {
        --count.to_weight;
        --count.pending;
      }
    }
  }
  return most;
}

struct Placed {
  Placement placement;
  int loop_chunks = 0;  // 0: the V
};

// What auto may take in place of a schedule: loops and the V, as deep as the model allows.
std::vector<Placed> placements(const ChoiceRequest& request) {
  const int p = request.ranks;
  const int m = request.base.batch.micro_batches;
  std::vector<Placed> all;
  for (const int v : {1, 2, 4}) {
    if (v > 1 && (p == 1 || p * v > unit_count(request.base.model))) continue;
    all.push_back({Placement::loop(p, v, m), v});
  }
  if (p > 1 && 2 * p <= unit_count(request.base.model)) all.push_back({Placement::v_shape(p, m), 0});
  return all;
}

// The memory limit in live activations per rank, and the fraction that stays between I and W.
struct LiveLimit {
  std::vector<double> limit;
  double weight_memory = 1;
};

LiveLimit live_limit(const ChoiceRequest& request, const Placement& placement, const Partition& partition,
                     HeadForm head, bool recompute) {
  PlanRequest base = request.base;
  base.head = head;
  const auto ranks = static_cast<std::size_t>(request.ranks);
  const std::vector<UnitRange> ranges = unit_ranges(placement, partition);
  std::vector<double> fixed(ranks, static_cast<double>(base.workspace_bytes));
  std::vector<double> live(ranks, 0.0), kept(ranks, 0.0), scratch(ranks, 0.0);
  const double tokens = 4.0 * static_cast<double>(base.batch.micro_batch_tokens() * base.batch.micro_batches);
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const auto r = static_cast<std::size_t>(placement.stages[s].rank);
    for (int u = ranges[s].first; u < ranges[s].last; ++u) {
      const UnitKind kind = unit_kind(base.model, u);
      const StageBytes bytes = stage_bytes(unit_shape(base, u, recompute), base.precision);
      fixed[r] += state_bytes(base, u);
      if (kind == UnitKind::embedding) fixed[r] += tokens;
      if (kind == UnitKind::head) fixed[r] += 2 * tokens;
      live[r] += static_cast<double>(bytes.forward_to_input + bytes.forward_to_weight);
      kept[r] += static_cast<double>(bytes.forward_to_weight + bytes.input_to_weight);
      scratch[r] = std::max(scratch[r], static_cast<double>(bytes.scratch + 2 * bytes.boundary));
      if (s == 0 && u == 0) {
        for (double& of_rank : fixed) of_rank += static_cast<double>(kMessageSlots * bytes.boundary);
      }
    }
  }
  LiveLimit limit;
  limit.weight_memory = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const double left = static_cast<double>(request.memory_limit) - fixed[r] - scratch[r];
    limit.limit.push_back(live[r] > 0 ? left / live[r] : 1.0);
    if (live[r] > 0) limit.weight_memory = std::max(limit.weight_memory, std::min(1.0, kept[r] / live[r]));
  }
  return limit;
}

Costs to_costs(const StageCosts& stages, const ChoiceRequest& request) {
  Costs costs;
  costs.forward = stages.forward;
  costs.input = stages.input;
  costs.weight = stages.weight;
  costs.latency = request.costs.latency;
  costs.bandwidth = request.costs.bandwidth;
  costs.message_bytes = static_cast<double>(request.base.batch.micro_batch_tokens() * request.base.model.hidden *
                                            element_size(request.base.precision));
  return costs;
}

SearchRequest search_request(const ChoiceRequest& request) {
  SearchRequest search;
  search.ranks = request.ranks;
  search.micro_batches = request.base.batch.micro_batches;
  search.bidirectional = false;
  search.max_virtual_stages = unit_count(request.base.model);
  return search;
}

// Nothing if no schedule runs within the limit.
std::optional<FoundSchedule> search_in(const ChoiceRequest& request, const Placed& placed, HeadForm head,
                                       bool recompute) {
  SearchRequest search = search_request(request);
  search.loop_chunks = placed.loop_chunks > 0 ? std::vector<int>{placed.loop_chunks} : std::vector<int>{};
  search.v_shape = placed.loop_chunks == 0;
  CutProblem problem;
  problem.placement = placed.placement;
  problem.slowness = request.costs.slowness;
  const UnitCosts& units = request.costs.units(head);
  for (std::size_t u = 0; u < units.forward.size(); ++u) problem.unit_ms.push_back(units.total(u));
  const Partition uniform = uniform_partition(request.base.model, placed.placement.depth());
  const std::optional<Cut> cut =
      request.cut == ChoiceRequest::Cut::measured ? fastest_cut(problem) : std::optional<Cut>(Cut{uniform});
  const Partition partition = cut ? cut->partition : uniform;
  std::vector<bool> recomputed;
  if (recompute) recomputed.assign(problem.unit_ms.size(), true);
  if (request.costs.given) {
    search.costs = *request.costs.given;
  } else {
    search.costs =
        to_costs(stage_costs(units, placed.placement, partition, request.costs.slowness, recomputed), request);
  }
  if (request.memory_limit > 0) {
    const LiveLimit limit = live_limit(request, placed.placement, partition, head, recompute);
    if (*std::min_element(limit.limit.begin(), limit.limit.end()) < 1) return std::nullopt;
    search.memory_limit = limit.limit;
    search.weight_memory = limit.weight_memory;
  }
  try {
    SearchResult result = search_schedule(search);
    return FoundSchedule{std::move(result.schedule), result.name + ": " + result.reason};
  } catch (const std::invalid_argument&) {  // costs of another number of stages, or nothing fits
    return std::nullopt;
  }
}

}  // namespace

std::vector<FoundSchedule> search_candidates(const ChoiceRequest& request) {
  if (request.cut == ChoiceRequest::Cut::list || request.recompute == ChoiceRequest::Recompute::list) {
    throw std::invalid_argument(
        "--schedule auto chooses how many virtual stages there are: lists per stage (--partition, --recompute) need a "
        "schedule that is named");
  }
  std::vector<HeadForm> heads = {HeadForm::streamed};
  if (request.head)
    heads = {*request.head};
  else if (!request.costs.given && request.base.training)
    heads.push_back(HeadForm::stored);
  std::vector<FoundSchedule> found;
  const auto search = [&](const Placed& placed, HeadForm head, bool recompute) {
    std::optional<FoundSchedule> one = search_in(request, placed, head, recompute);
    if (!one) return;
    const auto same = [&](const FoundSchedule& other) { return other.schedule.lists == one->schedule.lists; };
    if (std::none_of(found.begin(), found.end(), same)) found.push_back(std::move(*one));
  };
  for (const Placed& placed : placements(request)) {
    for (const HeadForm head : heads) {
      search(placed, head, false);
      const bool may_recompute = request.recompute == ChoiceRequest::Recompute::automatic && request.memory_limit > 0;
      if (may_recompute) search(placed, head, true);
    }
  }
  if (found.empty()) {
    Schedule leanest =
        make_schedule({.name = "1f1b", .ranks = request.ranks, .micro_batches = request.base.batch.micro_batches});
    found.push_back({std::move(leanest), "auto: 1f1b: nothing else fits the memory limit"});
  }
  return found;
}

UnitMemory unit_memory(const PlanRequest& request) {
  const Live live = live_of(request.schedule);
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
