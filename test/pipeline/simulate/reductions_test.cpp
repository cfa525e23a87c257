// Reductions over replicas beside a simulated step, by figures worked out by hand.
#include "pipeline/simulate/reductions.h"

#include <gtest/gtest.h>

#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

ReducedStep reduced(const ScheduleRequest& request, double ms, ReducedAt at = ReducedAt::stage) {
  const Schedule schedule = make_schedule(request);
  return reduce(schedule, stage_costs(Costs{}, schedule.placement), simulate(schedule, Costs{}), ms, at);
}

// Rank 0 is the last: its reduction begins when nobody has anything to do.
TEST(Reductions, OfOneStagePerRankAreExposedOnTheRankThatEndsLast) {
  const ReducedStep step = reduced({.name = "1f1b", .ranks = 4, .micro_batches = 32}, 1.0);
  EXPECT_DOUBLE_EQ(step.end, 35 * 3 + 1);
  EXPECT_DOUBLE_EQ(step.exposed, 1);
  EXPECT_LT(step.share(), 0.01);
}

// With two stages per rank, one is reduced while the other ends.
TEST(Reductions, OfAVAreHalfHidden) {
  const ScheduleRequest request{.name = "zb-v", .ranks = 4, .micro_batches = 32};
  const ReducedStep step = reduced(request, 1.0);
  EXPECT_DOUBLE_EQ(step.exposed, 0.5);
  EXPECT_LT(step.share(), 0.006);
  EXPECT_DOUBLE_EQ(reduced(request, 1.0, ReducedAt::list).exposed, 1);
}

// A quarter of the gradients has nothing beside it, whether the last W is an action of its own or the end of a B.
TEST(Reductions, InPartsEndWithThePartThatTheLastWEndsWith) {
  const ScheduleRequest one_stage{.name = "1f1b", .ranks = 4, .micro_batches = 32};
  EXPECT_DOUBLE_EQ(reduced(one_stage, 1.0, ReducedAt::part).exposed, 0.25);
  // Longer than the W: it begins when a quarter of the W, of 1 ms, is over.
  EXPECT_DOUBLE_EQ(reduced(one_stage, 3.0, ReducedAt::part).exposed, 3 - 0.75);
  const ScheduleRequest v{.name = "zb-v", .ranks = 4, .micro_batches = 32};
  EXPECT_DOUBLE_EQ(reduced(v, 1.0, ReducedAt::part).exposed, 0.125);
}

// p = 1, m = 1, four chunks: their backwards, of 1/2 ms, end at 3/2, 2, 5/2 and 3, and each is reduced for 3/4.
TEST(Reductions, FollowOneAnother) {
  const ScheduleRequest request{.name = "breadth-first", .ranks = 1, .micro_batches = 1, .chunks = 4};
  EXPECT_DOUBLE_EQ(reduced(request, 3.0).end, 1.5 + 4 * 0.75);
  EXPECT_DOUBLE_EQ(reduced(request, 3.0).exposed, 1.5);
  EXPECT_DOUBLE_EQ(reduced(request, 1.0).exposed, 0.25);
  EXPECT_DOUBLE_EQ(reduced(request, 3.0, ReducedAt::list).exposed, 3);
}

}  // namespace
}  // namespace train_gpt
