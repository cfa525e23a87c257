// Steps that are run again on threads of this process take the durations and links that they are given. Limits are
// lower ones: a busy machine makes steps longer, never shorter.
#include "commands/run/replay.h"

#include <gtest/gtest.h>

#include "pipeline/plan/partition.h"
#include "pipeline/schedule/catalog.h"

namespace train_gpt::test {
namespace {

constexpr int kRanks = 2, kMicroBatches = 2;

Plan plan_of_two_ranks() {
  PlanRequest request;
  request.model = {.layers = 2, .heads = 2, .hidden = 32, .vocab = 300, .max_seq_len = 16};
  request.schedule = make_schedule({.name = "1f1b", .ranks = kRanks, .micro_batches = kMicroBatches});
  request.partition = uniform_partition(request.model, kRanks);
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = kMicroBatches};
  request.computes = false;
  return make_plan(request);
}

TEST(Replay, EveryRankTakesItsOwnDurations) {
  const Plan plan = plan_of_two_ranks();
  for (int slow = 0; slow < kRanks; ++slow) {
    ActionDurations durations(kRanks, std::vector<double>(2 * kMicroBatches, 0.0));
    durations[static_cast<std::size_t>(slow)].assign(2 * kMicroBatches, 10.0);
    EXPECT_GE(replay_ms(plan, durations, {}, 1), 2 * kMicroBatches * 10.0) << "rank " << slow;
  }
}

// A micro-batch goes up and comes back: 200 ms, less what messages between threads take anyway.
TEST(Replay, MessagesTakeTheTimeOfTheirLinks) {
  const Plan plan = plan_of_two_ranks();
  const ActionDurations none(kRanks, std::vector<double>(2 * kMicroBatches, 0.0));
  const StageCosts links = stage_costs({.latency = {100}}, plan.request.schedule.placement);
  EXPECT_GE(replay_ms(plan, none, links, 1), 100);
}

}  // namespace
}  // namespace train_gpt::test
