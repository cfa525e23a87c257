// The copies of parameters and moments from which checkpoints are written: planned is allocated, on every rank of every
// replica.
#include "pipeline/train/state_copy.h"

#include <gtest/gtest.h>

#include "kernels/local_communicator.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/train/groups.h"

namespace train_gpt::test {
namespace {

// Bytes that the copies of all ranks of the job have, by rank.
std::vector<std::int64_t> copies_of(const std::string& schedule, int ranks, int replicas) {
  PlanRequest request;
  request.model = {.layers = 3, .heads = 2, .hidden = 8, .vocab = 257, .max_seq_len = 16};
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = 8, .replicas = replicas};
  request.schedule = make_schedule({.name = schedule, .ranks = ranks, .micro_batches = 8});
  request.batch.groups = replicas * request.directions();
  request.partition = uniform_partition(request.model, request.schedule.placement.depth());
  Plan plan = make_plan(request);
  for (RankPlan& rank : plan.ranks) rank.copy_bytes = copy_bytes_of(plan.request, rank);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(ranks * replicas), -1);
  run_local_ranks(ranks * replicas, [&](Communicator& world) {
    const std::unique_ptr<Device> device = make_cpu_device(1);
    const Groups groups = make_groups(world, {.data = replicas, .pipeline = ranks}, plan);
    const RankMemory memory(*device, plan, groups.rank());
    const StateCopy copy(*device, memory, request.model, groups.owns_parameters());
    const std::int64_t planned =
        groups.replica() == 0 ? plan.ranks[static_cast<std::size_t>(groups.rank())].copy_bytes : 0;
    EXPECT_EQ(copy.bytes(), planned) << schedule << ", rank " << world.rank() << " of " << world.size();
    const std::int64_t state = 3 * memory.plan().bytes_of(MemoryUse::parameters);
    EXPECT_EQ(copy.bytes(), groups.owns_parameters() ? state : 0) << schedule << ", rank " << world.rank();
    bytes[static_cast<std::size_t>(world.rank())] = copy.bytes();
  });
  return bytes;
}

TEST(StateCopy, IsThatOfTheFirstReplica) {
  const std::vector<std::int64_t> bytes = copies_of("1f1b", 2, 2);
  EXPECT_GT(bytes[0], 0);
  EXPECT_GT(bytes[1], 0);
  EXPECT_EQ(bytes[2], 0);
  EXPECT_EQ(bytes[3], 0);
}

TEST(StateCopy, IsThatOfOneOfTwoMirroredRanks) {
  const std::vector<std::int64_t> bytes = copies_of("dualpipe", 4, 2);
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) EXPECT_EQ(bytes[rank] > 0, rank < 2) << rank;
}

}  // namespace
}  // namespace train_gpt::test
