// Idle time on synthetic measurements of which every cause is known.
#include "pipeline/measure/idle.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/list_builder.h"

namespace train_gpt {
namespace {

constexpr double kRounding = 1e-9;

struct Case {
  std::string name;
  int ranks;
  int micro_batches;
};
const std::vector<Case> kCases = {{"gpipe", 4, 8},          {"1f1b", 4, 8},      {"1f1b", 3, 2},  {"interleaved", 4, 8},
                                  {"breadth-first", 2, 4},  {"zb-h1", 4, 8},     {"zb-v", 3, 6},  {"dualpipe", 4, 8},
                                  {"interleaved-zb", 2, 4}, {"dualpipev", 2, 6}, {"v-half", 4, 8}};

Schedule schedule_of(const Case& it) {
  return make_schedule({.name = it.name, .ranks = it.ranks, .micro_batches = it.micro_batches});
}

double idle(const Simulation& simulation) {
  return simulation.makespan * static_cast<double>(simulation.busy.size()) -
         std::accumulate(simulation.busy.begin(), simulation.busy.end(), 0.0);
}

// Every rank's parts against its own idle time, and the sums.
void expect_whole(const IdleTime& time, const Simulation& measured, const std::string& what) {
  double sum = 0;
  for (std::size_t r = 0; r < time.ranks.size(); ++r) {
    EXPECT_NEAR(time.ranks[r].sum(), measured.makespan - measured.busy[r], kRounding) << what << " rank " << r;
    sum += time.ranks[r].sum();
  }
  EXPECT_NEAR(time.all.sum(), sum, kRounding) << what;
  EXPECT_NEAR(time.all.sum() / time.available, measured.bubble, kRounding) << what;
}

TEST(Idle, EqualStagesAndFreeMessagesLeaveTheScheduleAlone) {
  for (const Case& it : kCases) {
    const Schedule schedule = schedule_of(it);
    const Simulation measured = simulate(schedule, Costs{.forward = {3}, .input = {4}, .weight = {2}});
    const IdleTime time = explain_idle(schedule, measured);
    expect_whole(time, measured, it.name);
    EXPECT_GT(time.all.schedule, 1.0) << it.name;
    EXPECT_NEAR(time.all.schedule, idle(measured), kRounding) << it.name;
    EXPECT_NEAR(time.all.imbalance, 0, kRounding) << it.name;
    EXPECT_NEAR(time.all.jitter, 0, kRounding) << it.name;
    EXPECT_NEAR(time.all.communication, 0, kRounding) << it.name;
  }
}

// A stage that runs B has no I and no W of its own: their means are those of the stages that do.
TEST(Idle, AnOperationThatAStageLacksCountsNothing) {
  Schedule schedule(Placement::loop(2, /*v=*/1, /*m=*/2), 2);
  schedule.rank(0).forward(0, 0).forward(0, 1).backward(0, 0).backward(0, 1);
  schedule.rank(1).forward(1, 0).backward_input(1, 0).forward(1, 1).backward_input(1, 1).backward_weight(1, 0);
  schedule.rank(1).backward_weight(1, 1);
  const Simulation measured = simulate(schedule, Costs{.forward = {3}, .input = {4}, .weight = {2}});
  const IdleTime time = explain_idle(schedule, measured);
  EXPECT_NEAR(time.all.schedule, idle(measured), kRounding);
  EXPECT_NEAR(time.all.imbalance, 0, kRounding);
}

TEST(Idle, ASlowRankIsImbalanceAndNothingElse) {
  for (const Case& it : kCases) {
    const Schedule schedule = schedule_of(it);
    Costs costs{.forward = std::vector<double>(static_cast<std::size_t>(it.ranks), 3.0)};
    costs.input = costs.weight = costs.forward;
    const double equal = idle(simulate(schedule, costs));
    for (std::vector<double>* values : {&costs.forward, &costs.input, &costs.weight}) (*values)[1] *= 1.5;
    const Simulation measured = simulate(schedule, costs);
    const IdleTime time = explain_idle(schedule, measured);
    expect_whole(time, measured, it.name);
    // The mean of all stages is 1 + 0.5/p times the cost of an equal one, and so is what the schedule alone leaves.
    EXPECT_NEAR(time.all.schedule, equal * (1 + 0.5 / it.ranks), 1e-6) << it.name;
    EXPECT_NEAR(time.all.imbalance, idle(measured) - time.all.schedule, kRounding) << it.name;
    // With few micro-batches the chain through all stages counts, which equal stages would make no shorter.
    EXPECT_GT(it.micro_batches < it.ranks ? -time.all.imbalance : time.all.imbalance, 1.0) << it.name;
    EXPECT_NEAR(time.all.jitter, 0, kRounding) << it.name;
    EXPECT_NEAR(time.all.communication, 0, kRounding) << it.name;
    if (schedule.placement.kind == Placement::Kind::bidirectional) continue;  // both ends of the pipe are slow
    EXPECT_LT(time.ranks[1].imbalance, time.ranks[0].imbalance) << it.name;
  }
}

TEST(Idle, ASlowLinkIsExposedCommunicationAndNothingElse) {
  for (const Case& it : kCases) {
    const Schedule schedule = schedule_of(it);
    const Costs costs{.forward = {3}, .input = {4}, .weight = {2}};
    Costs slow = costs;
    slow.latency = {0.7};
    const Simulation measured = simulate(schedule, slow);
    const double without = idle(simulate(schedule, costs));
    const IdleTime time = explain_idle(schedule, measured);
    expect_whole(time, measured, it.name);
    EXPECT_NEAR(time.all.schedule, without, kRounding) << it.name;
    EXPECT_NEAR(time.all.imbalance, 0, kRounding) << it.name;
    EXPECT_NEAR(time.all.jitter, 0, kRounding) << it.name;
    EXPECT_NEAR(time.all.communication, idle(measured) - without, kRounding) << it.name;
    EXPECT_GT(time.all.communication, 0.7) << it.name;
  }
}

TEST(Idle, UnevenActionsOfAStageAreJitterAndNothingElse) {
  const Schedule schedule = schedule_of({"1f1b", 4, 8});
  // One forward of rank 2 takes longer by as much as another one takes less: no mean changes.
  ActionDurations durations;
  for (const std::vector<Action>& list : schedule.lists) {
    std::vector<double>& row = durations.emplace_back();
    for (const Action& action : list) {
      const double uneven = action.op == Op::forward && action.stage == 2 ? (action.micro_batch == 5   ? 1.0
                                                                             : action.micro_batch == 6 ? -1.0
                                                                                                       : 0.0)
                                                                          : 0.0;
      row.push_back((action.op == Op::forward ? 3.0 : 6.0) + uneven);
    }
  }
  const Simulation measured = simulate(schedule, Costs{}, {.durations = &durations});
  const double even = idle(simulate(schedule, Costs{.forward = {3}, .input = {3}, .weight = {3}}));
  const IdleTime time = explain_idle(schedule, measured);
  expect_whole(time, measured, "1f1b");
  EXPECT_NEAR(time.all.schedule, even, kRounding);
  EXPECT_NEAR(time.all.imbalance, 0, kRounding);
  EXPECT_NEAR(time.all.jitter, idle(measured) - even, kRounding);
  EXPECT_GT(time.all.jitter, 1.0);
  EXPECT_NEAR(time.all.communication, 0, kRounding);
}

TEST(Idle, PartsOfAnythingSumToTheWhole) {
  std::mt19937 random(11);
  std::uniform_real_distribution<> some(0.5, 4.0);
  for (const Case& it : kCases) {
    const Schedule schedule = schedule_of(it);
    ActionDurations durations;
    for (const std::vector<Action>& list : schedule.lists) {
      std::vector<double>& row = durations.emplace_back();
      for (std::size_t i = 0; i < list.size(); ++i) row.push_back(some(random) * (list[i].stage + 1));
    }
    const Simulation measured = simulate(schedule, Costs{.latency = {0.3}}, {.durations = &durations});
    const IdleTime time = explain_idle(schedule, measured);
    expect_whole(time, measured, it.name);
    EXPECT_NEAR(time.makespan[3], measured.makespan, kRounding);
    EXPECT_GT(time.all.communication, 0) << it.name;
    for (const double makespan : time.makespan) EXPECT_GT(makespan, 0) << it.name;
  }
}

TEST(Idle, RefusesIntervalsOfOtherLists) {
  const Schedule schedule = schedule_of({"1f1b", 4, 8});
  Simulation measured = simulate(schedule, Costs{});
  measured.intervals[2].pop_back();
  EXPECT_THROW(explain_idle(schedule, measured), std::invalid_argument);
}

}  // namespace
}  // namespace train_gpt
