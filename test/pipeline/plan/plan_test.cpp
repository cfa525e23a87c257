// Figures of the plan that would only be printed: message slots, alignment, tables.
#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/plan/execution_plan.h"
#include "pipeline/plan/forward_only.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/channels.h"
#include "pipeline/simulate/check_schedule.h"
#include "test/refused.h"

namespace train_gpt {
namespace {

PlanRequest request_for(const std::string& schedule, int ranks, int micro_batches) {
  PlanRequest request;
  request.model = {.layers = 5, .heads = 2, .hidden = 8, .vocab = 257, .max_seq_len = 16};
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = micro_batches};
  request.schedule = make_schedule({.name = schedule, .ranks = ranks, .micro_batches = micro_batches});
  if (request.schedule.placement.kind == Placement::Kind::bidirectional) request.batch.groups = 2;
  request.partition = uniform_partition(request.model, request.schedule.placement.depth());
  return request;
}

// Messages of a list on a channel, at the end that the ring is of.
int messages_of(const std::vector<Action>& list, const ChannelTable& table, const Ring& ring) {
  return static_cast<int>(std::count_if(list.begin(), list.end(), [&](const Action& action) {
    const auto [consumes, produces] = table.messages(action);
    return (ring.kind == Ring::Kind::send ? produces : consumes) == ring.channel;
  }));
}

// Two sends are in flight at once, and as many messages wait as the longest queue of training or validation has; never
// more than a list has messages.
TEST(Plan, EveryChannelHasTheSlotsThatItsMessagesNeed) {
  for (const std::string& schedule : schedule_names()) {
    for (const int micro_batches : {1, 2, 8}) {
      if (violation({.name = schedule, .ranks = 4, .micro_batches = micro_batches})) continue;
      const Plan plan = make_plan(request_for(schedule, 4, micro_batches));
      const Schedule& training = plan.request.schedule;
      const std::vector<ChannelSlots> wanted = check_schedule(training).channels;
      std::vector<int> queues;
      forward_only(training, micro_batches, &queues);
      const ChannelTable table(training.placement);
      for (int rank = 0; rank < 4; ++rank) {
        for (const Ring& ring : plan.ranks[static_cast<std::size_t>(rank)].rings) {
          if (ring.kind == Ring::Kind::hand_over) continue;
          const auto channel = static_cast<std::size_t>(ring.channel);
          int messages = 0;
          for (const auto* list :
               {&training.actions(rank), &plan.validation.actions(rank), &plan.generation.actions(rank)}) {
            messages = std::max(messages, messages_of(*list, table, ring));
          }
          const int most = ring.kind == Ring::Kind::send ? 2 : std::max(wanted[channel].receive, queues[channel]);
          EXPECT_EQ(ring.slots, std::min(most, messages))
              << schedule << ", m = " << micro_batches << ", rank " << rank
              << (ring.kind == Ring::Kind::send ? ", sends" : ", receives") << " of channel " << channel;
        }
      }
    }
  }
}

TEST(Plan, SendsTakeTheirSlotsInTurn) {
  const Plan plan = make_plan(request_for("1f1b", 2, 8));
  std::vector<int> slots;
  for (const ActionPlan& action : plan.ranks[0].actions) {
    if (action.output_ring >= 0) slots.push_back(action.output_slot);
  }
  EXPECT_EQ(slots, (std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1}));
}

TEST(Plan, EveryAllocationIsAMultipleOf256Bytes) {
  for (const std::string& schedule : schedule_names()) {
    if (violation({.name = schedule, .ranks = 2, .micro_batches = 4})) continue;
    for (const RankPlan& rank : make_plan(request_for(schedule, 2, 4)).ranks) {
      for (const MemoryLine& line : rank.memory) EXPECT_EQ(line.bytes % 256, 0) << schedule << ": " << line.name;
    }
  }
}

TEST(Plan, GroupsAreUpToOnePerMicroBatch) {
  PlanRequest request = request_for("1f1b", 2, 4);
  request.batch.groups = 4;
  EXPECT_NO_THROW(make_plan(request));
  for (const int groups : {3, 8}) {
    request.batch.groups = groups;
    EXPECT_REFUSED(make_plan(request), "--accumulation-groups " + std::to_string(groups), "a power of two",
                   "at most the 4 micro-batches");
  }
}

TEST(Plan, TwoDirectionsAreTheirOwnGroups) {
  const Plan plan = make_plan(request_for("dualpipe", 2, 4));
  EXPECT_EQ(plan.ranks[0].bytes_of(MemoryUse::group_gradients), 0);
  PlanRequest groups = request_for("1f1b", 2, 4);
  groups.batch.groups = 2;
  EXPECT_EQ(make_plan(groups).ranks[0].bytes_of(MemoryUse::group_gradients),
            make_plan(groups).ranks[0].bytes_of(MemoryUse::gradients));
}

// Sums of groups are added as binary counting carries: of 2^k groups k wait at most, beside the one that grows.
TEST(Plan, GradientArenasAreOneMoreThanTheLevelsOfTheTree) {
  for (const int replicas : {1, 2, 4}) {
    for (int levels = 0; levels <= 4; ++levels) {
      PlanRequest request = request_for("zb-v", 2, 16);
      request.batch.replicas = replicas;
      request.batch.groups = replicas << levels;
      for (const RankPlan& rank : make_plan(request).ranks) {
        EXPECT_EQ(rank.bytes_of(MemoryUse::group_gradients), levels * rank.bytes_of(MemoryUse::gradients))
            << replicas << " replicas, " << request.batch.groups << " groups";
      }
    }
  }
}

// A copy of the model that validation does not go through needs no room for it.
TEST(Plan, ForwardsAloneRunThroughTheFirstCopy) {
  const Plan plan = make_plan(request_for("dualpipe", 2, 4));
  for (const RankPlan& rank : plan.ranks) {
    for (const StagePlan& stage : rank.stages) {
      const bool first_copy = plan.request.schedule.placement.stages[static_cast<std::size_t>(stage.stage)].copy == 0;
      const StageBytes expected = stage_bytes(stage.shape, Precision::fp32, /*trains=*/true, first_copy);
      EXPECT_EQ(stage.bytes.scratch, expected.scratch) << "stage " << stage.stage;
    }
  }
}

// Every lifetime has as many slots as are alive at once, by the rank's own list.
TEST(Plan, PoolsHaveASlotForEveryMicroBatchThatIsAlive) {
  for (const std::string& schedule : schedule_names()) {
    if (violation({.name = schedule, .ranks = 2, .micro_batches = 6})) continue;
    const Plan plan = make_plan(request_for(schedule, 2, 6));
    for (const RankPlan& rank : plan.ranks) {
      std::vector<int> alive(rank.pools.size(), 0), most(rank.pools.size(), 0);
      const auto change = [&](int pool, int by) {
        if (pool < 0) return;
        int& now = alive[static_cast<std::size_t>(pool)];
        now += by;
        most[static_cast<std::size_t>(pool)] = std::max(most[static_cast<std::size_t>(pool)], now);
      };
      for (const Action& action : plan.request.schedule.actions(rank.rank)) {
        const IndexOfLifetime pools = rank.stage_plan(action.stage).pools;
        const bool input = action.op == Op::backward || action.op == Op::backward_input;
        const bool weight = action.op == Op::backward || action.op == Op::backward_weight;
        if (action.op == Op::forward) change(pools.forward_to_input, 1), change(pools.forward_to_weight, 1);
        if (input) change(pools.input_to_weight, 1), change(pools.forward_to_input, -1);
        if (weight) change(pools.forward_to_weight, -1), change(pools.input_to_weight, -1);
      }
      for (std::size_t i = 0; i < rank.pools.size(); ++i) {
        EXPECT_EQ(rank.pools[i].slots, most[i])
            << schedule << ", rank " << rank.rank << ", " << pool_name(rank.pools[i]);
      }
    }
  }
}

TEST(ForwardOnly, ARankRunsTheDeepestStageWhoseInputIsThere) {
  const Schedule training = make_schedule({.name = "zb-v", .ranks = 2, .micro_batches = 3});
  const Schedule forward = forward_only(training, 3);
  std::vector<std::string> names;
  for (const Action& action : forward.actions(1)) names.push_back(to_string(action));
  EXPECT_EQ(names, (std::vector<std::string>{"1F0", "2F0", "1F1", "2F1", "1F2", "2F2"}));
}

TEST(FormatBytes, InPowersOf1024) {
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::int64_t{150} << 20), "150 MiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 40), "3.0 TiB");
}

TEST(MemoryTable, NamesTheLargestRankWhereNotAllAreShown) {
  PlanRequest request = request_for("gpipe", 9, 2);
  const Plan plan = make_plan(request);
  std::size_t largest = 0;
  for (std::size_t r = 1; r < plan.ranks.size(); ++r) {
    if (plan.ranks[r].total_bytes() > plan.ranks[largest].total_bytes()) largest = r;
  }
  EXPECT_NE(memory_table(plan).find("and 1 more ranks; the largest is rank " + std::to_string(largest) + " with " +
                                    format_bytes(plan.ranks[largest].total_bytes())),
            std::string::npos)
      << memory_table(plan);
}

TEST(MemoryTable, SaysWhichReplicaHasCopies) {
  for (const int replicas : {1, 2}) {
    PlanRequest request = request_for("1f1b", 2, 4);
    request.batch.replicas = request.batch.groups = replicas;
    Plan plan = make_plan(request);
    EXPECT_EQ(memory_table(plan).find("checkpoint copy"), std::string::npos);
    plan.ranks[0].copy_bytes = 3 << 20;
    const std::string table = memory_table(plan);
    EXPECT_NE(table.find("checkpoint copy, on host           3.0 MiB               -\n"), std::string::npos) << table;
    const bool said =
        table.find("Such copies has the first of the 2 replicas; the others write nothing") != std::string::npos;
    EXPECT_EQ(said, replicas == 2) << table;
  }
}

}  // namespace
}  // namespace train_gpt
