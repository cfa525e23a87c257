#include "pipeline/planner/layout_candidates.h"

#include <algorithm>
#include <numeric>

#include "model/parameters.h"
#include "pipeline/planner/partition_search.h"

namespace train_gpt {
namespace {

// Schedules of one rank: all of a micro-batch after the other; or, so that stages' gradients and parameters come and go
// one by one, all stages of a micro-batch, or all micro-batches of a stage.
std::vector<ScheduleRequest> schedules_of_one(const LayoutRequest& request, bool shares) {
  std::vector<ScheduleRequest> all = {{.name = "1f1b", .ranks = 1, .chunks = 1}};
  if (!shares) return all;
  const int layers = static_cast<int>(request.base.model.layers);
  for (const char* name : {"breadth-first", "interleaved"}) {
    for (const int v : {layers + 2, 2 * layers + 2}) all.push_back({.name = name, .ranks = 1, .chunks = v});
  }
  return all;
}

std::vector<ScheduleRequest> schedules_of_several(const LayoutRequest& request, int ranks) {
  std::vector<ScheduleRequest> all;
  for (const std::string& name : schedule_names()) {
    if (placement_kind(name) == Placement::Kind::bidirectional) continue;
    for (const int v : request.held.chunks) {
      if (takes_chunks(name) ? v == 1 : v != default_chunks(name)) continue;  // loops of 1 have names of their own
      if (std::int64_t{ranks} * v > unit_count(request.base.model)) continue;
      all.push_back({.name = name, .ranks = ranks, .chunks = v});
    }
  }
  return all;
}

// b: that is given, else the least times powers of two; the rows of a replica are a multiple of it.
std::vector<std::int64_t> micro_batch_sizes(const LayoutRequest& request, std::int64_t rows_of_replica) {
  std::vector<std::int64_t> sizes;
  const std::int64_t first = smallest_micro_batch(request);
  for (std::int64_t b = first; b <= rows_of_replica && rows_of_replica % b == 0; b *= 2) {
    sizes.push_back(b);
    if (request.held.rows) break;
  }
  return sizes;
}

std::vector<RankOrder> orders(const LayoutRequest& request, const Cluster& cluster, int ranks, int replicas) {
  if (request.held.order) return {*request.held.order};
  const bool matters =
      ranks > 1 && replicas > 1 && cluster.ranks_per_host > 1 && cluster.ranks_per_host < request.ranks;
  if (!matters) return {RankOrder::pipeline};
  return {RankOrder::pipeline, RankOrder::replicas};
}

CutProblem cut_problem(const LayoutRequest& request, const Placement& placement) {
  CutProblem problem;
  problem.placement = placement;
  for (std::size_t u = 0; u < request.row.forward.size(); ++u) problem.unit_ms.push_back(request.row.total(u));
  return problem;
}

}  // namespace

std::vector<RankLayout> layout_candidates(const LayoutRequest& request, const Cluster& cluster) {
  std::vector<RankLayout> all;
  const HeldLayout& held = request.held;
  const auto add = [&](RankLayout layout, const std::vector<ScheduleRequest>& schedules, std::int64_t rows_of_replica) {
    for (const std::int64_t b : micro_batch_sizes(request, rows_of_replica)) {
      layout.rows = b;
      layout.micro_batches = static_cast<int>(rows_of_replica / b);
      for (ScheduleRequest schedule : schedules) {
        schedule.micro_batches = layout.micro_batches;
        if (held.schedule.value_or(schedule.name) != schedule.name || violation(schedule)) continue;
        layout.schedule = schedule.name;
        layout.chunks = schedule.chunks;
        all.push_back(layout);
      }
    }
  };
  for (int p = 1; p <= std::min(request.ranks, unit_count(request.base.model)); ++p) {
    const int d = request.ranks / p;
    if (request.ranks % p != 0 || request.rows % d != 0) continue;
    if (held.ranks.value_or(p) != p || held.replicas.value_or(d) != d) continue;
    const std::vector<ScheduleRequest> schedules =
        p == 1 ? schedules_of_one(request, d > 1) : schedules_of_several(request, p);
    for (int zero = 0; zero <= (d > 1 ? 3 : 0); ++zero) {
      if (held.zero.value_or(zero) != zero && d > 1) continue;
      for (const RankOrder order : orders(request, cluster, p, d)) {
        add({.ranks = p, .replicas = d, .zero = zero, .order = order}, schedules, request.rows / d);
      }
    }
  }
  return all;
}

std::int64_t smallest_micro_batch(const LayoutRequest& request) {
  return request.held.rows.value_or(request.least_rows);
}

Placement placement_of(const RankLayout& layout) {
  if (placement_kind(layout.schedule) == Placement::Kind::v_shape) {
    return Placement::v_shape(layout.ranks, layout.micro_batches);
  }
  return Placement::loop(layout.ranks, layout.chunks, layout.micro_batches);
}

Partition layout_cut(const LayoutRequest& request, const RankLayout& layout) {
  const ModelConfig& model = request.base.model;
  const int units = unit_count(model), depth = layout.ranks * layout.chunks;
  if (layout.ranks == 1) {
    if (depth == 1) return {units};
    const int layer_stages = depth - 2;  // between the embedding and the whole head
    Partition cut(static_cast<std::size_t>(depth), 2 * static_cast<int>(model.layers) / layer_stages);
    cut.front() = 1;
    cut.back() = units - first_head_unit(model);
    return cut;
  }
  const CutProblem problem = cut_problem(request, placement_of(layout));
  std::vector<Partition> cuts = {uniform_partition(model, depth), even_cut(problem.unit_ms, depth)};
  // That of a loop of several stages per rank takes long.
  const bool is_quick = layout.chunks == 1 || problem.placement.kind == Placement::Kind::v_shape;
  if (is_quick) {
    if (auto fastest = fastest_cut(problem)) cuts.push_back(std::move(fastest->partition));
  }
  return *std::ranges::min_element(cuts, {}, [&](const Partition& cut) { return slowest_rank(problem, cut); });
}

double least_step(const LayoutRequest& request, const RankLayout& layout) {
  const Placement placement = placement_of(layout);
  const StageCosts costs = stage_costs(scaled(request.row, static_cast<double>(layout.rows)), HeadForm::streamed,
                                       placement, layout.partition, {}, {});
  const auto p = static_cast<std::size_t>(layout.ranks);
  std::vector<double> work(p, 0.0), reached(p, -1.0), returns(p, 0.0);
  double forwards = 0, backwards = 0;  // of the stages before
  // B hands its gradient on when it ends; these have no I.
  const bool fused = layout.schedule == "gpipe" || layout.schedule == "1f1b";
  for (std::size_t s = 0; s < costs.forward.size(); ++s) {
    const auto r = static_cast<std::size_t>(placement.stages[s].rank);
    if (reached[r] < 0) {
      reached[r] = forwards;
      returns[r] = backwards;
    }
    work[r] += layout.micro_batches * (costs.forward[s] + costs.input[s] + costs.weight[s]);
    forwards += costs.forward[s];
    backwards += costs.input[s] + costs.weight[s];
  }
  double least = 0;
  for (std::size_t r = 0; r < p; ++r) least = std::max(least, reached[r] + work[r] + (fused ? returns[r] : 0));
  return least;
}

double least_state_bytes(const LayoutRequest& request, const RankLayout& layout) {
  const ModelConfig& model = request.base.model;
  const std::vector<bool> all(static_cast<std::size_t>(unit_count(model)), true);
  const ArenaLayout arena = arena_layout(model, all, request.base.optimizer);
  constexpr double kFloat = sizeof(float);
  const auto part = [&](int zero) { return layout.zero >= zero ? 1.0 / layout.replicas : 1.0; };
  const auto elements = static_cast<double>(arena.elements);
  const double bytes =
      kFloat * (elements * (part(3) + part(2) + part(1)) + static_cast<double>(arena.second_elements) * part(1));
  return bytes / layout.ranks;
}

}  // namespace train_gpt
