// Properties of every schedule, whatever the sizes and the costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {
namespace {

class RandomCase {
 public:
  explicit RandomCase(std::mt19937& generator) : generator_(generator) {
    request.ranks = integer(1, 16);
    request.micro_batches = integer(1, 40);
    request.name = schedule_names()[integer(0, static_cast<int>(schedule_names().size()) - 1)];
    if (takes_chunks(request.name)) request.chunks = integer(1, 4);
    for (std::vector<double>* list : {&costs.forward, &costs.input, &costs.weight}) {
      const bool per_rank = integer(0, 1) == 1;
      list->assign(per_rank ? request.ranks : 1, 0.0);
      for (double& value : *list) value = 0.1 * integer(1, 30);
    }
    if (integer(0, 1) == 1) costs.latency = {0.05 * integer(1, 20)};
    if (integer(0, 2) == 0) costs.fused = {0.1 * integer(1, 60)};
    if (integer(0, 3) == 0) {
      costs.bandwidth = {10.0};
      costs.message_bytes = 1e6 * integer(1, 20);
    }
    weight_memory = 0.25 * integer(0, 4);
  }

  std::string describe() const {
    return request.name + " p=" + std::to_string(request.ranks) + " m=" + std::to_string(request.micro_batches) +
           " v=" + std::to_string(request.chunks);
  }

  ScheduleRequest request;
  Costs costs;
  double weight_memory = 1.0;

 private:
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator_); }
  std::mt19937& generator_;
};

// Each action of it starts when the one before has ended, or a hop later on another rank; the first at the beginning,
// the last ends with the step. (Where messages queue up for bandwidth they may come later.)
void expect_chain(const Schedule& schedule, const StageCosts& costs, const Simulation& simulation,
                  const std::string& what) {
  const std::vector<ActionPosition>& path = simulation.critical_path;
  ASSERT_FALSE(path.empty()) << what;
  const auto interval = [&](const ActionPosition& at) { return simulation.intervals[at.rank][at.position]; };
  EXPECT_EQ(interval(path.front()).start, 0) << what;
  EXPECT_EQ(interval(path.back()).end, simulation.makespan) << what;
  for (std::size_t i = 1; i < path.size(); ++i) {
    const Action& before = schedule.actions(path[i - 1].rank)[path[i - 1].position];
    const bool same_rank = path[i].rank == path[i - 1].rank;
    const double hop = same_rank ? 0 : costs.hop_after(before.op, before.stage, schedule.placement).total();
    ASSERT_NEAR(interval(path[i]).start, interval(path[i - 1]).end + hop, 1e-9 * simulation.makespan)
        << what << ": from " << to_string(before) << " to "
        << to_string(schedule.actions(path[i].rank)[path[i].position]);
  }
}

TEST(SimulateProperties, TheCriticalPathIsAChainWithoutGaps) {
  std::mt19937 generator(11);
  int checked = 0, pairs = 0;
  while (checked < 300) {
    RandomCase random(generator);
    random.costs.bandwidth.clear();
    if (violation(random.request)) continue;
    const Schedule schedule = make_schedule(random.request);
    const Simulation simulation = simulate(schedule, random.costs, {.critical_path = true});
    expect_chain(schedule, stage_costs(random.costs, schedule.placement), simulation, random.describe());
    ++checked;
    pairs += !random.costs.fused.empty() && random.request.name.starts_with("dualpipe") ? 1 : 0;
  }
  EXPECT_GT(pairs, 2);
}

void expect_consistent(const Schedule& schedule, const Costs& costs, const Simulation& simulation) {
  const double tolerance = 1e-9 * simulation.makespan;
  EXPECT_GE(simulation.makespan, simulation.lower_bound);
  EXPECT_GE(simulation.lower_bound, simulation.ideal);
  EXPECT_GE(simulation.makespan, simulation.span);
  EXPECT_GE(simulation.span + tolerance, simulation.ideal);
  EXPECT_GE(simulation.bubble, 0.0);
  EXPECT_LT(simulation.bubble, 1.0);
  EXPECT_GE(simulation.bubble_span, 0.0);
  const double busy = std::accumulate(simulation.busy.begin(), simulation.busy.end(), 0.0);
  EXPECT_NEAR(simulation.bubble, 1.0 - busy / (schedule.ranks * simulation.makespan), 1e-9);

  // One action at a time, in order; a pair that runs as one is the exception.
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::vector<Interval>& intervals = simulation.intervals[rank];
    for (std::size_t i = 1; i < intervals.size(); ++i) {
      const bool pair = !costs.fused.empty() && schedule.actions(rank)[i - 1].fused_with_next;
      EXPECT_GE(intervals[i].start, pair ? intervals[i - 1].start : intervals[i - 1].end) << rank << " " << i;
    }
    EXPECT_LE(simulation.peak_pending_weight[rank], schedule.micro_batches);
    EXPECT_LE(simulation.peak_live[rank], schedule.micro_batches);
    EXPECT_GT(simulation.peak_live[rank], 0.0);
  }

  std::int64_t messages = 0;
  for (const ChannelLoad& load : simulation.channels) {
    messages += load.messages;
    EXPECT_NE(load.channel.source, load.channel.destination);
    EXPECT_GE(load.longest_queue, 1);
    EXPECT_LE(load.longest_queue, load.messages);
  }
  EXPECT_EQ(messages, simulation.messages);

  // The chain of actions leads from the first start to the last end without a gap that is not communication.
  ASSERT_FALSE(simulation.critical_path.empty());
  const auto interval = [&](const ActionPosition& at) { return simulation.intervals[at.rank][at.position]; };
  EXPECT_EQ(interval(simulation.critical_path.front()).start, 0.0);
  EXPECT_EQ(interval(simulation.critical_path.back()).end, simulation.makespan);
  for (std::size_t i = 1; i < simulation.critical_path.size(); ++i) {
    const ActionPosition before = simulation.critical_path[i - 1], after = simulation.critical_path[i];
    const double gap = interval(after).start - interval(before).end;
    if (before.rank == after.rank) {
      EXPECT_EQ(gap, 0.0);
    } else if (costs.bandwidth.empty()) {
      EXPECT_NEAR(gap, costs.latency[0], tolerance);
    } else {
      EXPECT_GE(gap + tolerance, costs.latency[0] + costs.message_bytes / (costs.bandwidth[0] * 1e6));
    }
  }
}

TEST(SimulateProperties, RandomSizesAndCosts) {
  std::mt19937 generator(20240320);
  int simulated = 0;
  for (int i = 0; i < 600; ++i) {
    const RandomCase random(generator);
    if (violation(random.request)) continue;
    SCOPED_TRACE(random.describe());
    const Schedule schedule = make_schedule(random.request);
    const SimulateOptions options{.critical_path = true, .weight_memory = random.weight_memory};
    const Simulation simulation = simulate(schedule, random.costs, options);
    expect_consistent(schedule, random.costs, simulation);
    ++simulated;
    if (HasFailure()) break;
  }
  EXPECT_GT(simulated, 300);
}

// Feeding back the durations that the costs gave must change nothing.
TEST(SimulateProperties, DurationsOfItsOwnIntervals) {
  std::mt19937 generator(7);
  for (int i = 0; i < 60; ++i) {
    RandomCase random(generator);
    random.costs.fused.clear();
    if (violation(random.request)) continue;
    SCOPED_TRACE(random.describe());
    const Schedule schedule = make_schedule(random.request);
    const Simulation first = simulate(schedule, random.costs);
    ActionDurations durations;
    for (const std::vector<Interval>& list : first.intervals) {
      durations.emplace_back();
      for (const Interval& interval : list) durations.back().push_back(interval.end - interval.start);
    }
    const Simulation second = simulate(schedule, random.costs, {.durations = &durations});
    EXPECT_NEAR(second.makespan, first.makespan, 1e-9 * first.makespan);
    EXPECT_NEAR(second.lower_bound, first.lower_bound, 1e-9 * first.makespan);
    EXPECT_NEAR(second.bubble_span, first.bubble_span, 1e-9);
  }
}

}  // namespace
}  // namespace train_gpt
