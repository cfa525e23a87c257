#include "commands/replay.h"

#include <algorithm>

#include "commands/run/action_time.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/injected_delays.h"
#include "kernels/local_communicator.h"
#include "pipeline/train/executor.h"
#include "pipeline/train/rank_memory.h"

namespace train_gpt {
namespace {

// The hops between stages as links between ranks.
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

struct Times {
  double first = 0, last = 0;
};

}  // namespace

double replay_ms(const Plan& plan, const ActionDurations& durations, const StageCosts& links, int times) {
  const Schedule& schedule = plan.request.schedule;
  std::vector<std::vector<Times>> measured(static_cast<std::size_t>(times),
                                           std::vector<Times>(static_cast<std::size_t>(schedule.ranks)));
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
    for (std::vector<Times>& step : measured) {
      pipeline->barrier();
      executor.train_step(1.0f, {});
      if (executor.marks().empty()) continue;
      step[static_cast<std::size_t>(rank)] = {device.time_ms(executor.marks().front().begin),
                                              device.time_ms(executor.marks().back().end)};
    }
  });
  std::vector<double> makespans;
  for (const std::vector<Times>& step : measured) {
    Times all = step.front();
    for (const Times& rank : step) all = {std::min(all.first, rank.first), std::max(all.last, rank.last)};
    makespans.push_back(all.last - all.first);
  }
  std::sort(makespans.begin(), makespans.end());
  return makespans[makespans.size() / 2];
}

}  // namespace train_gpt
