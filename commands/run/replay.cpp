#include "commands/run/replay.h"

#include <algorithm>

#include "commands/run/action_time.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/injected_delays.h"
#include "kernels/local_communicator.h"
#include "pipeline/measure/what_if.h"
#include "pipeline/train/executor.h"
#include "pipeline/train/rank_memory.h"

namespace train_gpt {
namespace {

// Turns the hops between stages into a link between ranks.
DelaySpec::Link link_between(const Placement& placement, const StageCosts& costs, int source, int destination) {
  constexpr double kBytesPerMillisecond = 1e6;  // of 1 GB/s
  for (std::size_t s = 0; s < placement.stages.size() && !costs.activation.empty(); ++s) {
    const int previous = placement.stages[s].previous;
    if (previous < 0) continue;
    const int before = placement.stages[static_cast<std::size_t>(previous)].rank, rank = placement.stages[s].rank;
    const bool up = source == before && destination == rank, down = source == rank && destination == before;
    if (before == rank || (!up && !down)) continue;
    const Hop& hop = (up ? costs.activation : costs.gradient)[s];
    return {hop.latency, hop.transfer > 0 ? hop.bytes / (hop.transfer * kBytesPerMillisecond) : 0.0};
  }
  return {};
}

using Steps = std::vector<RecordedStep>;

// Runs `times` steps on threads of this process, with these hops between them.
Steps run_steps(const Plan& plan, const ActionDurations& durations, const StageCosts& links, int times) {
  const Schedule& schedule = plan.request.schedule;
  Steps steps(static_cast<std::size_t>(times));
  for (RecordedStep& step : steps) step.actions.resize(static_cast<std::size_t>(schedule.ranks));
  run_local_ranks(schedule.ranks, [&](Communicator& world) {
    const int rank = world.rank();
    cpu::CpuDevice device(1);
    DelaySpec spec;
    spec.link = [&](int source, int destination, int) {
      return link_between(schedule.placement, links, source, destination);
    };
    const std::unique_ptr<Communicator> pipeline = inject_delays(world.split(0, rank), spec);
    RankMemory memory(device, plan, rank);
    Executor executor(device, *pipeline, plan, memory);
    executor.open();
    executor.set_extra_work([&](std::size_t position) {
      spend(durations[static_cast<std::size_t>(rank)][position], [&] { pipeline->progress(); });
    });
    for (RecordedStep& step : steps) {
      pipeline->barrier();
      executor.train_step(1.0f, {});
      for (const ActionMarks& marks : executor.marks())
        step.actions[static_cast<std::size_t>(rank)].push_back(
            {device.time_ms(marks.begin), device.time_ms(marks.middle), device.time_ms(marks.end)});
    }
  });
  return steps;
}

// The time that hops are to take beyond that of a message here, which is measured.
StageCosts beyond_own(const Plan& plan, const ActionDurations& durations, const StageCosts& links) {
  const Schedule& schedule = plan.request.schedule;
  if (links.activation.empty()) return links;
  const StageCosts free = stage_costs(Costs{}, schedule.placement);
  const WhatIf own({schedule, free, run_steps(plan, durations, free, 1)});
  StageCosts rest = links;
  for (std::size_t s = 0; s < rest.activation.size(); ++s) {
    rest.activation[s].latency = std::max(0.0, rest.activation[s].latency - own.links().activation[s].latency);
    rest.gradient[s].latency = std::max(0.0, rest.gradient[s].latency - own.links().gradient[s].latency);
  }
  return rest;
}

}  // namespace

double replay_ms(const Plan& plan, const ActionDurations& durations, const StageCosts& links, int times) {
  std::vector<double> makespans;
  for (const RecordedStep& step : run_steps(plan, durations, beyond_own(plan, durations, links), times))
    makespans.push_back(makespan_of(step));
  std::sort(makespans.begin(), makespans.end());
  return makespans[makespans.size() / 2];
}

}  // namespace train_gpt
