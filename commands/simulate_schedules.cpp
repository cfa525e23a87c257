#include "commands/simulate_schedules.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "commands/run/setup.h"
#include "commands/search_watch.h"
#include "commands/simulate_replicas.h"
#include "model/config.h"
#include "pipeline/draw/table.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/csv.h"
#include "pipeline/schedule/flushless.h"
#include "pipeline/search/search.h"
#include "pipeline/simulate/check_schedule.h"
#include "pipeline/simulate/periodic.h"
#include "pipeline/simulate/phases.h"

namespace train_gpt {
namespace {

SimulateOptions simulate_options(const Options& options, Detail detail) {
  return {.intervals = detail == Detail::intervals || options.costs.reduction > 0,
          .channels = detail != Detail::figures,
          .critical_path = detail == Detail::intervals,
          .weight_memory = options.simulate.weight_memory};
}

SimulatedSchedule simulate_file(const Options& options, Detail detail) {
  SimulatedSchedule result{options.pipeline.schedule_file, read_schedule_csv(options.pipeline.schedule_file), {}, {}};
  const Schedule& schedule = result.schedule;
  const auto check = [&](const char* option, bool given, int wanted, int found, const char* what) {
    if (!given || wanted == found) return;
    throw std::invalid_argument(std::string(option) + " " + std::to_string(wanted) + ": " + result.name + " has " +
                                std::to_string(found) + " " + what + "; leave the option out");
  };
  check("--stages", options.costs.stages != 0, options.costs.stages, schedule.ranks, "ranks");
  check("--micro-batches", options.batch.micro_batches_given, options.batch.micro_batches, schedule.micro_batches,
        "micro-batches");
  const Costs costs = costs_of(options, schedule.ranks);
  result.remarks = check_schedule(schedule, costs).notices;
  result.simulation = simulate(schedule, costs, simulate_options(options, detail));
  return result;
}

std::string versions_line(const Schedule& schedule) {
  const std::string& name = schedule.name;
  if (stashes_weights(name)) {
    return name + ": rank 0 keeps " + std::to_string(schedule.ranks) +
           " versions of its parameters, each rank one less than the one before it; its gradients are " +
           std::to_string(schedule.ranks - 1) + " updates old, those of the last rank none";
  }
  return name +
         ": by the order of the lists, whatever actions and messages cost, the gradients of a step are complete " +
         "before anybody needs the update by it, so that nobody waits for their norm: rank 0 runs " +
         std::to_string(update_slack(schedule)) + " forwards and backwards between the two";
}

SimulatedSchedule simulate_flushless(const Options& options, const std::string& name, Detail detail) {
  const FlushlessRequest request{.name = name,
                                 .ranks = options.costs.stages,
                                 .micro_batches = options.batch.micro_batches,
                                 .warmup_factor = options.pipeline.warmup_factor,
                                 .steps = options.simulate.steps};
  SimulatedSchedule result{name, make_schedule(request), {}, {}};
  check_schedule(result.schedule, costs_of(options, options.costs.stages));
  SimulateOptions wanted = simulate_options(options, detail);
  wanted.intervals = true;
  result.simulation = simulate(result.schedule, costs_of(options, options.costs.stages), wanted);
  result.steady = steady_state(result.schedule, result.simulation);
  char bubble[16];
  std::snprintf(bubble, sizeof bubble, "%.2f%%", 100 * result.steady->bubble);
  result.remarks = {name + ": the figures above are of " + std::to_string(request.steps) +
                        " steps from fill to drain; a step in their middle takes " +
                        with_digits(result.steady->period, 6) + " ms with a bubble of " + bubble,
                    versions_line(result.schedule)};
  if (detail != Detail::intervals) result.simulation.intervals = {};
  return result;
}

bool lists_are_wanted(const Options& options, Detail detail) {
  return detail == Detail::intervals || !options.simulate.csv.empty() || options.costs.reduction > 0 ||
         has_replicas(options);
}

std::size_t actions_of(const Schedule& schedule) {
  std::size_t actions = 0;
  for (const std::vector<Action>& list : schedule.lists) actions += list.size();
  return actions;
}

// Says so if lists are long and do not repeat themselves, since they take a while.
void tell_size(const Schedule& schedule) {
  constexpr std::size_t kLong = 10'000'000;
  const std::size_t actions = actions_of(schedule);
  if (actions < kLong) return;
  std::fprintf(stderr, "%s: %zu million actions that do not repeat themselves are simulated one by one\n",
               schedule.name.c_str(), actions / 1'000'000);
}

// Long lists that follow a rule are not made.
std::optional<Simulation> simulate_by_rule(const ScheduleRequest& request, const Costs& costs,
                                           const SimulateOptions& options) {
  if (runs_in_phases(request.name)) return simulate_in_phases(request, costs, options);
  return simulate_by_turns(request, costs, options);
}

SimulatedSchedule simulate_named(const Options& options, const std::string& name, Detail detail) {
  const ScheduleRequest request{.name = name,
                                .ranks = options.costs.stages,
                                .micro_batches = options.batch.micro_batches,
                                .chunks = options.pipeline.chunks_for(name),
                                .group_size = options.pipeline.group_size_for(name)};
  SimulatedSchedule result{name, {}, {}, {}};
  if (placement_kind(name) == Placement::Kind::bidirectional)
    result.remarks.push_back(
        name +
        ": every rank holds the parameters of two stages, with their gradients and moments: twice those of the others");
  const SimulateOptions wanted = simulate_options(options, detail);
  if (lists_are_wanted(options, detail) || violation(request)) {
    result.schedule = make_schedule(request);
  } else if (auto found = simulate_by_rule(request, costs_of(options, options.costs.stages), wanted)) {
    result.schedule.ranks = request.ranks;
    result.schedule.micro_batches = request.micro_batches;
    result.schedule.chunks = request.chunks > 0 ? request.chunks : default_chunks(name);
    result.simulation = std::move(*found);
    return result;
  } else {
    result.schedule = make_schedule(request);
    tell_size(result.schedule);
  }
  result.simulation = simulate(result.schedule, costs_of(options, options.costs.stages), wanted);
  return result;
}

SearchRequest auto_request(const Options& options) {
  const SimulateOutputOptions& wanted = options.simulate;
  SearchRequest request;
  request.ranks = options.costs.stages;
  request.micro_batches = options.batch.micro_batches;
  request.costs = costs_of(options, options.costs.stages);
  request.memory_limit = wanted.memory_limit;
  request.loop_chunks = options.pipeline.auto_chunks;
  request.v_shape = std::find(request.loop_chunks.begin(), request.loop_chunks.end(), 2) != request.loop_chunks.end();
  request.weight_memory = wanted.weight_memory;
  request.objective = wanted.objective;
  request.bidirectional = true;
  return request;
}

SimulatedSchedule simulate_auto(const Options& options, Detail detail) {
  const SimulateOutputOptions& wanted = options.simulate;
  SearchRequest request = auto_request(options);
  SearchWatch watch(options.pipeline.search_seconds);
  request.progress = watch.progress();
  const bool by_span = wanted.objective == Objective::span;
  SearchResult found = search_schedule(request);

  SimulatedSchedule result{"auto", std::move(found.schedule), {}, {}};
  constexpr std::size_t kLong = 4'000'000;
  const bool drawn = wanted.ascii || !wanted.svg.empty() || !wanted.html.empty();
  const bool too_long = !drawn && actions_of(result.schedule) > kLong;
  if (too_long) detail = Detail::figures;
  result.simulation = simulate(result.schedule, request.costs, simulate_options(options, detail));
  // The bound of the search holds for every allowed order and placement, not just for these lists.
  result.simulation.lower_bound = found.lower_bound;
  result.remarks = {found.name + ": " + found.reason,
                    std::string("no schedule that --schedule auto may choose has a ") +
                        (by_span ? "span" : "makespan") + " below " + with_digits(found.lower_bound, 7) + " ms",
                    found.searched};
  if (too_long)
    result.remarks.emplace_back(
        "its channels and critical path are left out: the lists have more than 4 million actions");
  if (found.stopped) result.remarks.emplace_back("the search was stopped: this is the best until then");
  return result;
}

bool exceeds(const std::vector<double>& limit, const Simulation& simulation) {
  constexpr double kRounding = 1e-9;
  if (limit.empty()) return false;
  if (limit.size() != 1 && limit.size() != simulation.peak_live.size())
    throw std::invalid_argument("--memory-limit: " + std::to_string(limit.size()) +
                                " values; give 1 or one per rank (" + std::to_string(simulation.peak_live.size()) +
                                ")");
  for (std::size_t rank = 0; rank < simulation.peak_live.size(); ++rank)
    if (simulation.peak_live[rank] > limit[limit.size() == 1 ? 0 : rank] * (1.0 + kRounding)) return true;
  return false;
}

// The exposed part of the reductions over replicas, and that of reductions that wait for longer.
void add_reductions(const Options& options, SimulatedSchedule& simulated, Detail detail) {
  if (simulated.schedule.steps == 1) {
    const StageCosts costs = stage_costs(costs_of(options, simulated.schedule.ranks), simulated.schedule.placement);
    const auto reduced = [&](ReducedAt at) {
      return reduce(simulated.schedule, costs, simulated.simulation, options.costs.reduction, at);
    };
    simulated.reduced = reduced(ReducedAt::part);
    const auto percent_of = [](const ReducedStep& step) { return with_digits(100 * step.share(), 3) + "%"; };
    simulated.remarks.push_back(simulated.name + ": with reductions over replicas a step takes " +
                                with_digits(simulated.reduced->end, 7) + " ms, of which they hold it up " +
                                percent_of(*simulated.reduced) + " (" + percent_of(reduced(ReducedAt::stage)) +
                                " if each waited for the end of its stage's last W, " +
                                percent_of(reduced(ReducedAt::list)) + " if all waited for that of a rank's list)");
  }
  if (detail != Detail::intervals) simulated.simulation.intervals = {};
}

}  // namespace

Costs costs_of(const Options& options, int ranks) {
  Costs costs = given_costs(options, ranks);
  if (costs.bandwidth.empty()) return costs;
  const std::int64_t hidden = options.model.hidden ? *options.model.hidden : preset(options.model.preset).hidden;
  const std::int64_t element = options.device.precision == Precision::bf16 ? 2 : 4;
  costs.message_bytes = static_cast<double>(options.batch.micro_batch_size * options.batch.seq_len * hidden * element);
  return costs;
}

SimulatedSchedules simulate_all(const Options& options, Detail detail) {
  SimulatedSchedules result;
  const auto keep = [&](SimulatedSchedule simulated) {
    if (options.costs.reduction > 0) add_reductions(options, simulated, detail);
    const Schedule& schedule = simulated.schedule;
    if (has_replicas(options) && schedule.steps == 1) {
      SharedSchedule shared =
          simulate_replicas(options, schedule, stage_costs(costs_of(options, schedule.ranks), schedule.placement));
      simulated.shared = shared.step;
      simulated.remarks.push_back(std::move(shared.remark));
    }
    if (exceeds(options.simulate.memory_limit, simulated.simulation)) {
      const std::vector<double>& live = simulated.simulation.peak_live;
      result.over_limit.push_back(simulated.name + " (" + with_digits(*std::max_element(live.begin(), live.end()), 5) +
                                  ")");
      return;
    }
    // Large lists would add up to much memory.
    if (detail != Detail::intervals && options.simulate.csv.empty()) simulated.schedule.lists = {};
    result.simulated.push_back(std::move(simulated));
  };
  if (!options.pipeline.schedule_file.empty()) {
    keep(simulate_file(options, detail));
    return result;
  }
  for (const std::string& name : options.pipeline.schedules) {
    try {
      keep(name == "auto"       ? simulate_auto(options, detail)
           : is_flushless(name) ? simulate_flushless(options, name, detail)
                                : simulate_named(options, name, detail));
    } catch (const std::invalid_argument& refusal) {
      if (!options.pipeline.all_schedules) throw;
      result.impossible.push_back(name + ": " + refusal.what());
    }
  }
  return result;
}

std::vector<MemoryAndTime> memory_and_time(const Options& options) {
  SearchRequest request = auto_request(options);
  SearchWatch watch(options.pipeline.search_seconds);
  request.progress = watch.progress();
  std::vector<MemoryAndTime> points;
  const SearchResult free = search_schedule(request);
  for (const SearchCandidate& it : free.candidates) {
    if (it.name == "own order" || !it.fits) continue;
    std::string name = it.name;
    if (takes_chunks(name)) name += ", v = " + std::to_string(it.chunks);
    if (it.group_size > 0) name += ", g = " + std::to_string(it.group_size);
    points.push_back({name, it.peak_live, it.makespan, false});
  }
  const auto take = [&](const std::string& name, const Simulation& simulation) {
    const std::vector<double>& live = simulation.peak_live;
    points.push_back({name, *std::max_element(live.begin(), live.end()), simulation.makespan, false});
  };
  take("auto", free.simulation);
  if (!request.memory_limit.empty()) return points;
  // Every whole number of activations at first, then larger steps.
  const double most = points.back().peak;
  for (double limit = 1; limit < most; limit += limit < 8 ? 1 : std::floor(limit / 4)) {
    request.memory_limit = {limit};
    take("auto, limit " + with_digits(limit, 4), search_schedule(request).simulation);
  }
  return points;
}

}  // namespace train_gpt
