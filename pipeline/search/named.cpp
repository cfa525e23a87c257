#include "pipeline/search/named.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

#include "pipeline/schedule/catalog.h"
#include "pipeline/search/problem.h"
#include "pipeline/simulate/periodic.h"
#include "pipeline/simulate/phases.h"

namespace train_gpt::search {
namespace {

constexpr std::int64_t kLong = 100'000;  // actions

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

bool fits(const SearchRequest& request, const Simulation& simulation) {
  const std::vector<double>& limit = request.memory_limit;
  if (limit.empty()) return true;
  for (std::size_t rank = 0; rank < simulation.peak_live.size(); ++rank)
    if (simulation.peak_live[rank] > limit[limit.size() == 1 ? 0 : rank] + kMemorySlack) return false;
  return true;
}

}  // namespace

SearchCandidate make_candidate(const std::string& name, const Placement& placement, const Simulation& simulation,
                               const SearchRequest& request) {
  SearchCandidate candidate;
  candidate.name = name;
  candidate.placement = placement.kind;
  candidate.chunks = placement.chunks;
  candidate.fits = fits(request, simulation);
  candidate.makespan = simulation.makespan;
  candidate.bubble = simulation.bubble;
  candidate.span = simulation.span;
  candidate.bubble_span = simulation.bubble_span;
  candidate.messages = simulation.messages;
  candidate.peak_live = *std::max_element(simulation.peak_live.begin(), simulation.peak_live.end());
  return candidate;
}

std::vector<ScheduleRequest> named_requests(const SearchRequest& request, const Placement& placement) {
  std::vector<ScheduleRequest> all;
  const int p = request.ranks, m = request.micro_batches;
  for (const std::string& name : schedule_names()) {
    if (placement_kind(name) != placement.kind) continue;
    if (!takes_chunks(name) && default_chunks(name) != placement.chunks) continue;
    std::set<int> groups{0};
    if (takes_group_size(name)) groups = {default_group_size(p, m), 2 * p, 4 * p, m};
    for (const int group : groups) {
      const ScheduleRequest wanted{name, p, m, placement.chunks, group};
      if (!violation(wanted)) all.push_back(wanted);
    }
  }
  return all;
}

std::vector<NamedSchedule> named_schedules(const SearchRequest& request, Work& work) {
  std::vector<NamedSchedule> found;
  SimulateOptions options;
  options.intervals = options.channels = false;
  options.weight_memory = request.weight_memory;
  std::vector<Placement> placements = allowed_placements(request);
  if (request.bidirectional && request.ranks % 2 == 0 && chunks_allowed(request, 1))
    placements.push_back(Placement::bidirectional(request.ranks, request.micro_batches));
  for (const Placement& placement : placements) {
    std::vector<ScheduleRequest> requests = named_requests(request, placement);
    std::stable_partition(requests.begin(), requests.end(),
                          [](const ScheduleRequest& wanted) { return !runs_in_phases(wanted.name); });
    const std::size_t first = found.size();
    for (const ScheduleRequest& wanted : requests) {
      // None is faster than one at the bound, and none takes more memory than one whose backwards begin when all
      // forwards have ended; each of their actions is gone through, which takes long where there are many.
      const bool at_bound = std::any_of(found.begin() + static_cast<std::ptrdiff_t>(first), found.end(),
                                        [](const NamedSchedule& it) { return it.at_bound && it.candidate.fits; });
      if (at_bound && runs_in_phases(wanted.name) && 3ll * placement.depth() * request.micro_batches > kLong) continue;
      // No order of these actions is faster than the last one was, and larger groups only take more memory.
      const bool same_actions =
          !found.empty() && found.back().candidate.name == wanted.name && found.back().request.chunks == wanted.chunks;
      const std::int64_t actions = 3ll * placement.depth() * request.micro_batches;
      if (same_actions && found.back().at_bound && found.back().candidate.fits && actions > kLong) continue;
      work.add(actions);
      std::optional<Simulation> simulation;
      if (actions > kLong)
        simulation = runs_in_phases(wanted.name) ? simulate_in_phases(wanted, request.costs, options)
                                                 : simulate_by_turns(wanted, request.costs, options);
      if (!simulation) simulation = simulate(make_schedule(wanted), request.costs, options);
      found.push_back({make_candidate(wanted.name, placement, *simulation, request), wanted});
      found.back().candidate.group_size = wanted.group_size;
      const bool makespan = request.objective == Objective::makespan;
      found.back().bound = makespan ? simulation->lower_bound : simulation->ideal;
      found.back().at_bound = (makespan ? simulation->makespan : simulation->span) <= found.back().bound * (1 + 1e-9);
    }
    // Back into the order of the catalog.
    const std::vector<std::string>& names = schedule_names();
    const auto place = [&](const NamedSchedule& it) {
      return std::find(names.begin(), names.end(), it.candidate.name) - names.begin();
    };
    std::stable_sort(found.begin() + static_cast<std::ptrdiff_t>(first), found.end(),
                     [&](const NamedSchedule& a, const NamedSchedule& b) { return place(a) < place(b); });
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
