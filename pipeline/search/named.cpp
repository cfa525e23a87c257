#include "pipeline/search/named.h"

#include <algorithm>

#include "pipeline/schedule/catalog.h"
#include "pipeline/search/problem.h"

namespace train_gpt::search {
namespace {

bool contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool costs_fit(const Costs& costs, int ranks, int chunks) {
  const auto fits = [&](const std::vector<double>& values) {
    const auto size = static_cast<std::int64_t>(values.size());
    return size == 1 || size == std::int64_t{ranks} * chunks || (size == ranks && size > 1);
  };
  return fits(costs.forward) && fits(costs.input) && fits(costs.weight) && (costs.fused.empty() || fits(costs.fused));
}

bool chunks_allowed(const SearchRequest& request, int chunks) {
  return std::int64_t{request.ranks} * chunks <= request.max_virtual_stages &&
         costs_fit(request.costs, request.ranks, chunks);
}

bool allowed(const SearchRequest& request, const Placement& placement) {
  if (!chunks_allowed(request, placement.chunks)) return false;
  switch (placement.kind) {
    case Placement::Kind::loop:
      return contains(request.loop_chunks, placement.chunks);
    case Placement::Kind::v_shape:
      return request.v_shape;
    case Placement::Kind::bidirectional:
      return request.bidirectional;
    case Placement::Kind::table:
      return false;
  }
  return false;
}

bool fits(const SearchRequest& request, const Simulation& simulation) {
  const std::vector<double>& limit = request.memory_limit;
  if (limit.empty()) return true;
  for (std::size_t rank = 0; rank < simulation.peak_live.size(); ++rank)
    if (simulation.peak_live[rank] > limit[limit.size() == 1 ? 0 : rank] + kMemorySlack) return false;
  return true;
}

}  // namespace

SearchCandidate make_candidate(const std::string& name, const Schedule& schedule, const Simulation& simulation,
                               const SearchRequest& request) {
  SearchCandidate candidate;
  candidate.name = name;
  candidate.placement = schedule.placement.kind;
  candidate.chunks = schedule.chunks;
  candidate.fits = fits(request, simulation);
  candidate.makespan = simulation.makespan;
  candidate.bubble = simulation.bubble;
  candidate.span = simulation.span;
  candidate.bubble_span = simulation.bubble_span;
  candidate.peak_live = *std::max_element(simulation.peak_live.begin(), simulation.peak_live.end());
  return candidate;
}

std::vector<NamedSchedule> named_schedules(const SearchRequest& request) {
  std::vector<NamedSchedule> found;
  SimulateOptions options;
  options.intervals = options.channels = false;
  options.weight_memory = request.weight_memory;
  for (const std::string& name : schedule_names()) {
    std::vector<int> chunk_choices{default_chunks(name)};
    if (takes_chunks(name)) chunk_choices = request.loop_chunks;
    for (const int chunks : chunk_choices) {
      const ScheduleRequest wanted{name, request.ranks, request.micro_batches, chunks, 0};
      if (!chunks_allowed(request, chunks) || violation(wanted)) continue;
      Schedule schedule = make_schedule(wanted);
      if (!allowed(request, schedule.placement)) continue;
      Simulation simulation = simulate(schedule, request.costs, options);
      SearchCandidate candidate = make_candidate(name, schedule, simulation, request);
      found.push_back({std::move(candidate), std::move(schedule), std::move(simulation)});
    }
  }
  return found;
}

std::vector<Placement> allowed_placements(const SearchRequest& request) {
  std::vector<Placement> placements;
  std::vector<int> chunk_choices = request.loop_chunks;
  std::sort(chunk_choices.begin(), chunk_choices.end());
  chunk_choices.erase(std::unique(chunk_choices.begin(), chunk_choices.end()), chunk_choices.end());
  for (const int chunks : chunk_choices)
    if (chunks_allowed(request, chunks))
      placements.push_back(Placement::loop(request.ranks, chunks, request.micro_batches));
  if (request.v_shape && chunks_allowed(request, 2))
    placements.push_back(Placement::v_shape(request.ranks, request.micro_batches));
  return placements;
}

}  // namespace train_gpt::search
