// The timer of steps against the simulator, which runs the lists anew for all costs.
#include "pipeline/planner/step_timer.h"

#include <gtest/gtest.h>

#include <random>

#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/flushless.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {
namespace {

StageCosts random_costs(std::mt19937& random, const Placement& placement, bool links) {
  std::uniform_real_distribution<> ms(0, 3);
  Costs costs;
  costs.forward.clear();
  costs.input.clear();
  costs.weight.clear();
  for (int stage = 0; stage < placement.depth(); ++stage) {
    costs.forward.push_back(ms(random));
    costs.input.push_back(random() % 3 == 0 ? 0 : ms(random));  // as in a shard of the head
    costs.weight.push_back(ms(random));
  }
  if (links) {
    costs.latency = {ms(random) / 10};
    costs.bandwidth = {1};
    costs.message_bytes = 1e6 * ms(random);
  }
  return stage_costs(costs, placement);
}

TEST(StepTimer, IsTheSimulatorToTheLastBit) {
  std::mt19937 random(7);
  for (const std::string& name : schedule_names()) {
    const ScheduleRequest request{.name = name, .ranks = 4, .micro_batches = 12};
    if (violation(request)) continue;
    const Schedule schedule = make_schedule(request);
    StepTimer step_ms(schedule);  // one for all costs
    for (int i = 0; i < 6; ++i) {
      const StageCosts costs = random_costs(random, schedule.placement, i % 2 == 1);
      EXPECT_EQ(step_ms(costs), simulate(schedule, costs).makespan) << name << " " << i;
    }
  }
}

// What one pass cannot tell is simulated.
TEST(StepTimer, CountsPairsSendsAndStepsWithoutAFlush) {
  std::mt19937 random(8);
  const Schedule pairs = make_schedule(ScheduleRequest{.name = "dualpipev", .ranks = 4, .micro_batches = 12});
  StageCosts costs = random_costs(random, pairs.placement, true);
  costs.fused.assign(pairs.placement.stages.size(), 0.5);
  EXPECT_EQ(StepTimer(pairs)(costs), simulate(pairs, costs).makespan);
  costs.fused.clear();
  const double undisturbed = StepTimer(pairs)(costs);
  costs.send_slowdown = 0.5;
  EXPECT_EQ(StepTimer(pairs)(costs), simulate(pairs, costs).makespan);
  EXPECT_GT(StepTimer(pairs)(costs), undisturbed);

  const Schedule endless = make_schedule(FlushlessRequest{.name = "2bw", .ranks = 4, .micro_batches = 4});
  const StageCosts equal = stage_costs(Costs{}, endless.placement);
  EXPECT_EQ(StepTimer(endless)(equal), simulate_step(endless, equal, {}).makespan);
}

TEST(StepTimer, RefusesListsThatBlockEachOther) {
  Schedule schedule = make_schedule(ScheduleRequest{.name = "gpipe", .ranks = 2, .micro_batches = 2});
  std::swap(schedule.lists[1].front(), schedule.lists[1].back());
  const StageCosts costs = stage_costs(Costs{}, schedule.placement);
  EXPECT_THROW(StepTimer{schedule}(costs), std::invalid_argument);
}

}  // namespace
}  // namespace train_gpt
