// The messages that a rank sends, receives and awaits, and its words about them, with peers that the test plays.
#include "pipeline/train/executor.h"

#include <gtest/gtest.h>

#include <map>

#include "pipeline/schedule/catalog.h"
#include "test/pipeline/train/scripted_communicator.h"

namespace train_gpt::test {
namespace {

constexpr int kRanks = 3;

// Nothing is computed; only the messages are looked at.
Plan plan_of(const std::string& schedule, int micro_batches) {
  PlanRequest request;
  request.model = {.layers = 5, .heads = 2, .hidden = 8, .vocab = 257, .max_seq_len = 16};
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = micro_batches};
  request.schedule = make_schedule({.name = schedule, .ranks = kRanks, .micro_batches = micro_batches});
  request.partition = uniform_partition(request.model, request.schedule.placement.depth());
  request.computes = false;
  return make_plan(request);
}

// One step of one rank; `on_await(executor, ticket)` is called before each wait.
class ScriptedRank {
 public:
  ScriptedRank(const std::string& schedule, int micro_batches, int rank)
      : plan(plan_of(schedule, micro_batches)),
        table(plan.request.schedule.placement),
        communicator(rank, kRanks),
        memory_(*device_, plan, rank),
        executor(*device_, communicator, plan, memory_),
        list(plan.request.schedule.actions(rank)) {}

  void run() {
    executor.train_step(1, [this](std::size_t i) { done = i + 1; });
  }

  Plan plan;
  ChannelTable table;
  ScriptedCommunicator communicator;

 private:
  std::unique_ptr<Device> device_ = make_cpu_device(1);
  RankMemory memory_;

 public:
  Executor executor;
  const std::vector<Action>& list;
  std::size_t done = 0;  // actions
};

TEST(Executor, SaysForWhomItWaits) {
  ScriptedRank rank("1f1b", 4, 1);
  int inputs = 0, slots = 0;
  rank.communicator.on_await = [&](Ticket ticket) {
    if (rank.done == rank.list.size()) return;  // the last sends
    const Action& action = rank.list[rank.done];
    const bool forward = action.op == Op::forward;
    const std::string kind = forward ? "activation" : "gradient";
    const std::string name = to_string(action);
    const bool receives = ticket != 0 && !rank.communicator.operation(ticket).sends;
    if (receives) {
      ++inputs;
      EXPECT_EQ(rank.executor.doing(), "waiting for the " + kind + " of micro-batch " +
                                           std::to_string(action.micro_batch) + " from rank " + (forward ? "0" : "2") +
                                           ", to run " + name);
    } else {
      ++slots;
      EXPECT_EQ(rank.executor.doing(), std::string("waiting until rank ") + (forward ? "2" : "0") +
                                           " has taken an earlier " + kind + ", to run " + name);
    }
  };
  rank.run();
  EXPECT_EQ(inputs, 8);
  EXPECT_EQ(slots, 8);
  EXPECT_EQ(rank.executor.doing(), "between two steps");
}

// At any time as many receives are under way as there are slots, or messages to come.
TEST(Executor, StartsReceivesAsSoonAsASlotIsFree) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
    ScriptedRank rank(schedule, 6, 1);
    std::map<int, int> messages;  // by channel
    for (const Action& action : rank.list) {
      if (const int channel = rank.table.messages(action).consumes; channel >= 0) ++messages[channel];
    }
    std::map<int, int> slots;
    for (const Ring& ring : rank.plan.ranks[1].rings) {
      if (ring.kind == Ring::Kind::receive) slots[ring.channel] = ring.slots;
    }
    int looked_at = 0;
    rank.communicator.on_await = [&](Ticket) {
      std::map<int, int> posted, taken;
      for (const ScriptedCommunicator::Operation& one : rank.communicator.operations()) {
        if (!one.sends) ++posted[one.channel];
      }
      for (std::size_t i = 0; i < rank.done; ++i) {
        if (const int channel = rank.table.messages(rank.list[i]).consumes; channel >= 0) ++taken[channel];
      }
      for (const auto& [channel, all] : messages) {
        EXPECT_EQ(posted[channel], std::min(all, taken[channel] + slots[channel]))
            << schedule << ", action " << rank.done;
        ++looked_at;
      }
    };
    rank.run();
    EXPECT_GT(looked_at, 12);
  }
}

TEST(Executor, WritesNoSlotWhoseMessageHasNotLeftAndLeavesNoneBehind) {
  ScriptedRank rank("zb-h1", 6, 1);
  std::map<const void*, Ticket> last;  // by address
  std::size_t looked_at = 0;
  const auto look = [&] {
    for (; looked_at < rank.communicator.operations().size(); ++looked_at) {
      const auto ticket = static_cast<Ticket>(looked_at + 1);
      const ScriptedCommunicator::Operation& one = rank.communicator.operation(ticket);
      if (!one.sends) continue;
      EXPECT_TRUE(rank.communicator.is_done(last[one.data])) << "send " << ticket << " from a slot that is in use";
      last[one.data] = ticket;
    }
  };
  rank.executor.train_step(1, [&](std::size_t) { look(); });
  EXPECT_EQ(last.size(), 4U) << "two slots for each of two neighbours";
  for (std::size_t i = 0; i < rank.communicator.operations().size(); ++i) {
    EXPECT_TRUE(rank.communicator.is_done(static_cast<Ticket>(i + 1))) << "left in flight: operation " << i;
  }
}

}  // namespace
}  // namespace train_gpt::test
