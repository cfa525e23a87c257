// Collectives of replicas beside a simulated step, by figures worked out by hand.
#include "pipeline/simulate/collectives.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

SharedStep shared(const Schedule& schedule, const Collectives& collectives) {
  return with_collectives(schedule, stage_costs(Costs{}, schedule.placement), collectives);
}

// p = 1, m = 1, four chunks of F 1/4 and B 1/2 ms: F0 F1 F2 F3 B3 B2 B1 B0.
class CollectivesBeside : public testing::Test {
 protected:
  CollectivesBeside()
      : schedule_(make_schedule({.name = "breadth-first", .ranks = 1, .micro_batches = 1, .chunks = 4})) {}
  static Collective gather(int stage, std::size_t after, std::size_t before, double ms) {
    return {.kind = Collective::Kind::gather, .stage = stage, .after = after, .before = before, .ms = ms};
  }
  Schedule schedule_;
};

// The backwards end at 3/2, 2, 5/2 and 3, and each stage is reduced for 3/4, one after the other.
TEST_F(CollectivesBeside, ReductionsFollowOneAnother) {
  Collectives all(1);
  for (int s = 3; s >= 0; --s) all[0].push_back({.stage = s, .after = static_cast<std::size_t>(8 - s), .ms = 0.75});
  EXPECT_DOUBLE_EQ(shared(schedule_, all).end, 1.5 + 4 * 0.75);
  EXPECT_DOUBLE_EQ(shared(schedule_, all).exposed, 1.5);
  EXPECT_DOUBLE_EQ(shared(schedule_, all).share(), 1.5 / 4.5);
  for (Collective& one : all[0]) one.ms = 0.25;
  EXPECT_DOUBLE_EQ(shared(schedule_, all).exposed, 0.25);
}

// The last backward is through half of its gradients 1/4 ms before it ends.
TEST_F(CollectivesBeside, ReductionsBeginWithinAnAction) {
  const Collectives all = {{{.after = 8, .ahead = 0.25, .ms = 0.5}, {.after = 8, .ms = 0.5}}};
  EXPECT_DOUBLE_EQ(shared(schedule_, all).end, 3 - 0.25 + 1);
}

// One after the other from the beginning: they are there at 3/4, 3/2, 9/4 and 3, and F3 begins at 3.
TEST_F(CollectivesBeside, GathersHoldUpTheForwardsThatNeedThem) {
  Collectives all(1);
  for (int s = 0; s < 4; ++s) all[0].push_back(gather(s, 0, static_cast<std::size_t>(s), 0.75));
  EXPECT_DOUBLE_EQ(shared(schedule_, all).end, 3 + 0.25 + 4 * 0.5);
  EXPECT_DOUBLE_EQ(shared(schedule_, all).exposed, 2.25);
}

// For F2 while F1 computes, and for B1 while B2 does: the first takes 1/4 more than F1, the second less than B2.
TEST_F(CollectivesBeside, GathersGoOnBesideTheActionBefore) {
  const Collectives all = {{gather(2, 1, 2, 0.5), gather(1, 5, 6, 0.45)}};
  EXPECT_DOUBLE_EQ(shared(schedule_, all).exposed, 0.25);
}

// A gather behind a reduction that is under way: the reduction of stage 3 begins at 3/2, and B1 waits until 3/2 + 1
// + 1.
TEST_F(CollectivesBeside, GathersWaitForCollectivesBeforeThem) {
  Collectives all(1);
  all[0].push_back({.stage = 3, .after = 5, .ms = 1});
  all[0].push_back(gather(1, 5, 6, 1));
  EXPECT_DOUBLE_EQ(shared(schedule_, all).end, 3.5 + 2 * 0.5);
}

// What a rank waits for others wait for through it: rank 1 gets its first input a millisecond later.
TEST_F(CollectivesBeside, GathersDelayTheRanksBehind) {
  const Schedule schedule = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 1});
  Collectives all(2);
  all[0].push_back(gather(0, 0, 0, 1));
  all[1].push_back(gather(1, 0, 0, 1.5));  // there before its input is
  EXPECT_DOUBLE_EQ(shared(schedule, all).end, 7);
}

TEST_F(CollectivesBeside, GathersThatAreAwaitedBeforeTheyAreIssuedAreRefused) {
  EXPECT_THROW(shared(schedule_, {{gather(0, 3, 1, 1)}}), std::invalid_argument);
}

}  // namespace
}  // namespace train_gpt
