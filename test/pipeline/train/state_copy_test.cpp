// The copies of parameters and moments from which checkpoints are written: planned is allocated, on every rank of every
// replica.
#include "pipeline/train/state_copy.h"

#include <gtest/gtest.h>

#include "kernels/local_communicator.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/train/trainer.h"

namespace train_gpt::test {
namespace {

// Bytes that the copies of all ranks of the job have, by rank.
std::vector<std::int64_t> copies_of(const std::string& schedule, int ranks, int replicas, int zero) {
  PlanRequest request;
  request.model = {.layers = 3, .heads = 2, .hidden = 8, .vocab = 257, .max_seq_len = 16};
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = 8, .replicas = replicas};
  request.schedule = make_schedule({.name = schedule, .ranks = ranks, .micro_batches = 8});
  request.batch.groups = replicas * request.directions();
  request.partition = uniform_partition(request.model, request.schedule.placement.depth());
  request.zero = zero;
  Plan plan = make_plan(request);
  for (RankPlan& rank : plan.ranks) rank.copy_bytes = copy_bytes_of(plan.request, rank, 0);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(ranks * replicas), -1);
  run_local_ranks(ranks * replicas, [&](Communicator& world) {
    const std::unique_ptr<Device> device = make_cpu_device(1);
    Groups groups = make_groups(world, {.data = replicas, .pipeline = ranks}, plan);
    Trainer trainer(*device, groups, plan, {});
    const StateCopy copy(*device, trainer, request.model);
    const RankPlan& rank = plan.ranks[static_cast<std::size_t>(groups.rank())];
    EXPECT_EQ(copy.size(), copy_bytes_of(plan.request, rank, groups.replica())) << schedule << ", " << world.rank();
    bytes[static_cast<std::size_t>(world.rank())] = copy.size();
  });
  return bytes;
}

TEST(StateCopy, IsThatOfTheFirstReplica) {
  const std::vector<std::int64_t> bytes = copies_of("1f1b", 2, 2, /*zero=*/0);
  EXPECT_GT(bytes[0], 0);
  EXPECT_GT(bytes[1], 0);
  EXPECT_EQ(bytes[2], 0);
  EXPECT_EQ(bytes[3], 0);
}

TEST(StateCopy, IsThatOfOneOfTwoMirroredRanks) {
  const std::vector<std::int64_t> bytes = copies_of("dualpipe", 4, 2, /*zero=*/0);
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) EXPECT_EQ(bytes[rank] > 0, rank < 2) << rank;
}

// Each replica has a part of the moments, and of the parameters where these are parts, too.
TEST(StateCopy, IsInPartThatOfAllReplicasThatShareStateOut) {
  const std::vector<std::int64_t> whole = copies_of("1f1b", 2, 2, /*zero=*/0);
  const std::vector<std::int64_t> moments = copies_of("1f1b", 2, 2, /*zero=*/1);
  const std::vector<std::int64_t> all = copies_of("interleaved", 2, 2, /*zero=*/3);
  for (const std::size_t rank : {0, 1}) {
    EXPECT_GT(moments[rank + 2], 0) << rank;
    EXPECT_GT(moments[rank], moments[rank + 2]) << rank;
    EXPECT_LT(moments[rank], whole[rank]) << rank;
    EXPECT_GT(all[rank + 2], 0) << rank;
  }
}

}  // namespace
}  // namespace train_gpt::test
