// The search's parts, each against values that follow from its definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "pipeline/schedule/catalog.h"
#include "pipeline/search/blocks.h"
#include "pipeline/search/ladder.h"
#include "pipeline/search/named.h"
#include "pipeline/search/own_orders.h"
#include "pipeline/search/search.h"
#include "pipeline/search/trains.h"

namespace train_gpt::search {
namespace {

Problem v_problem(int p, int m, double limit, const Costs& costs = {}) {
  SearchRequest request{.ranks = p, .micro_batches = m, .costs = costs, .memory_limit = {limit}};
  return make_problem(request, Placement::v_shape(p, m));
}

// 1, 2, 3, then half-way steps between powers of two.
TEST(SearchLadder, HasTwoSizesToEveryPowerOfTwo) {
  const std::set<int> expected = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96};
  for (int n = 1; n <= 100; ++n) {
    EXPECT_EQ(on_ladder(n), expected.contains(n)) << n;
    EXPECT_EQ(ladder_below(n), *std::prev(expected.upper_bound(n))) << n;
  }
}

// In stages of a rank: every whole number up to 8, then steps of 2 up to 16, and so on; besides, few activations of
// which some have only what W needs.
TEST(SearchLadder, LimitsAreStagesOverChunks) {
  EXPECT_EQ(memory_ladder(1, 1, 12), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 10, 12}));
  EXPECT_EQ(memory_ladder(2, 1, 3), (std::vector<double>{1, 1.5, 2, 2.5, 3}));
  EXPECT_EQ(memory_ladder(1, 0.25, 2), (std::vector<double>{1, 1.25, 1.5, 2}));
}

// V-Min and its like: no slot twice, and V-Min itself where memory is scarce.
TEST(SearchBlocks, NoTwoActionsOfARankShareASlot) {
  const int p = 4;
  const std::vector<Timetable> blocks = building_blocks(v_problem(p, 8, 2), 150);
  ASSERT_FALSE(blocks.empty());
  bool has_v_min = false;
  for (const Timetable& block : blocks) {
    const int period = static_cast<int>(block.period);
    bool is_v_min = period == 6;
    for (int rank = 0; rank < p; ++rank) {
      std::set<int> slots;
      for (const int stage : {rank, 2 * p - 1 - rank}) {
        const std::size_t s = index(stage);
        slots.insert(static_cast<int>(block.forward[s]) % period);
        slots.insert(static_cast<int>(block.input[s]) % period);
        is_v_min = is_v_min && block.forward[s] == stage && block.input[s] == 4 * p - 1 - stage;
      }
      EXPECT_EQ(slots.size(), 4u) << "period " << period << ", rank " << rank;
    }
    has_v_min = has_v_min || is_v_min;
  }
  EXPECT_TRUE(has_v_min);
}

TEST(SearchNamed, ConsidersGroupsOfAllSizesThatItNames) {
  SearchRequest request{.ranks = 2, .micro_batches = 16};
  std::set<int> groups;
  for (const ScheduleRequest& it : named_requests(request, Placement::loop(2, 2, 16)))
    if (it.name == "interleaved") groups.insert(it.group_size);
  EXPECT_EQ(groups, (std::set<int>{2, 4, 8, 16}));
}

// Lists that need not be simulated action by action: 1f1b is at the bound, and gpipe can be no better.
TEST(SearchNamed, OfLongListsTheOnesThatKeepAllAreLeftOutBesideOneAtTheBound) {
  const auto names_of = [](int m) {
    SearchRequest request{.ranks = 2, .micro_batches = m};
    request.loop_chunks = {1};
    request.v_shape = false;
    Work work(nullptr);
    std::vector<std::string> names;
    for (const NamedSchedule& it : named_schedules(request, work)) names.push_back(it.candidate.name);
    return names;
  };
  const std::vector<std::string> few = names_of(8), many = names_of(20'000);
  EXPECT_EQ(few.front(), "gpipe");
  EXPECT_EQ(std::count(many.begin(), many.end(), "gpipe"), 0);
  EXPECT_EQ(std::count(many.begin(), many.end(), "zb-h1"), 1);
}

TEST(SearchOrders, WithoutTheLastMicroBatchEveryLetterIsThereOnceLess) {
  const Problem larger = v_problem(3, 7, 3);
  const std::optional<Order> order =
      from_schedule(larger, make_schedule({.name = "zb-v", .ranks = 3, .micro_batches = 7}));
  ASSERT_TRUE(order.has_value());
  for (const RankOrder& list : without_last(larger, *order)) {
    EXPECT_EQ(list.size(), 6u * 6);
    for (Letter letter = 0; letter < 6; ++letter) EXPECT_EQ(std::count(list.begin(), list.end(), letter), 6);
  }
}

TEST(SearchOrders, ThePoliciesThatComeBackAreTheBestOnes) {
  const Problem problem = v_problem(4, 12, 2.5, {.forward = {1.1}, .input = {1.3}, .weight = {0.7}});
  Work work(nullptr);
  Pool pool(problem, work);
  pool.offer(one_at_a_time(problem));
  const std::vector<Policy> policies = build_orders(problem, Policies::all, pool, work);
  ASSERT_FALSE(policies.empty());
  Pool again(problem, work);
  const std::optional<Order> order = list_schedule(problem, policies.front());
  ASSERT_TRUE(order.has_value());
  again.offer(*order);
  EXPECT_DOUBLE_EQ(again.best().score.objective, pool.best().score.objective);
}

TEST(SearchTrains, FindTheirWayWithinTheMemory) {
  for (const double slack : {0.0, 2.0})
    for (const bool slots : {false, true}) {
      const Problem problem = v_problem(8, 24, 3);
      const std::optional<Order> order = schedule_trains(problem, {slack, slots});
      ASSERT_TRUE(order.has_value());
      Evaluator evaluator(problem);
      ASSERT_TRUE(evaluator.evaluate(*order));
      for (int rank = 0; rank < 8; ++rank) EXPECT_LE(evaluator.peak(rank), 3 + kMemorySlack);
    }
}

// A way takes 64 slots of half a millisecond. The 5 activations that fit let 64 micro-batches follow each other every 7
// slots in the mean: 63 x 3.5 + 33 = 253.5 and what is lost at the ends; patterns of one period need 8, which is 285.
TEST(SearchTrains, ComeMoreOftenThanAPatternOfOnePeriod) {
  const Problem problem = v_problem(16, 64, 5);
  const std::optional<Order> order = schedule_trains(problem, {2, false});
  ASSERT_TRUE(order.has_value());
  Evaluator evaluator(problem);
  ASSERT_TRUE(evaluator.evaluate(*order));
  EXPECT_LE(evaluator.score().objective, 270);
}

// Two stages on two ranks, no memory to spare: each micro-batch has to be through before the next one.
TEST(SearchTrains, WaitForMemory) {
  SearchRequest request{.ranks = 2, .micro_batches = 3, .memory_limit = {1}};
  const Problem problem = make_problem(request, Placement::loop(2, 1, 3));
  const std::optional<Order> order = schedule_trains(problem, {});
  ASSERT_TRUE(order.has_value());
  Evaluator evaluator(problem);
  ASSERT_TRUE(evaluator.evaluate(*order));
  // F, F, I, I, W: 5 ms, of which the next one's F on rank 0 can overlap nothing.
  EXPECT_DOUBLE_EQ(evaluator.score().objective, 15);
}

// I of a shard of the head takes no time: what it makes ready starts at that very moment. Forwards first I, then W;
// from the end likewise.
TEST(SearchGreedy, GoesOnAfterActionsThatTakeNoTime) {
  Costs costs;
  costs.input = {0};
  const SearchRequest request{.ranks = 1, .micro_batches = 4, .costs = costs};
  const Problem problem = make_problem(request, Placement::loop(1, 1, 4));
  for (const bool from_the_end : {false, true}) {
    Policy policy;
    policy.from_the_end = from_the_end;
    const std::optional<Order> order = list_schedule(problem, policy);
    ASSERT_TRUE(order) << from_the_end;
    Evaluator evaluator(problem);
    ASSERT_TRUE(evaluator.evaluate(*order));
    EXPECT_DOUBLE_EQ(evaluator.score().objective, 8);
  }
}

// F of the last rank is twice as long, its I takes no time: as much to do as the others. By hand: two F until rank 2
// starts, then six micro-batches of 3 ms, W in every gap.
TEST(SearchGreedy, RulesFillUnlikeStages) {
  Costs costs;
  costs.forward = {1, 1, 2};
  costs.input = {1, 1, 0};
  const SearchRequest request{.ranks = 3, .micro_batches = 6, .costs = costs, .loop_chunks = {1}, .v_shape = false};
  const std::optional<OrderByRules> found = order_by_rules(request);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->objective, 20);
  EXPECT_DOUBLE_EQ(simulate(found->schedule, costs).makespan, 20);
}

}  // namespace
}  // namespace train_gpt::search
