// Windows: whatever an action reads is whole then, places that are used at once differ, and the plan says what is
// gained.
#include "pipeline/plan/windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "pipeline/plan/lowering.h"
#include "pipeline/plan/shards.h"
#include "test/pipeline/plan/sharded_request.h"

namespace train_gpt::test {
namespace {

struct Block {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool overlaps(const Block& other) const { return begin < other.end && other.begin < end; }
};

Block block_of(const RankPlan& rank, const Windows& windows, std::size_t section) {
  return {windows.offsets[section], windows.offsets[section] + rank.sections[section].elements};
}

bool reads(const RankPlan& rank, const Section& section, const Action& action) {
  const bool tied_head = section.kind == Section::Kind::embedding && rank.stage_plan(action.stage).shape.has_shards();
  return section.has_parameters && (action.stage == section.stage || tied_head);
}

// Walks through a list: from a gather's issue to its end a place belongs to one section, and an action finds what it
// reads.
void expect_whole_when_read(const RankPlan& rank, const std::vector<Action>& list,
                            const std::vector<Gathering>& gatherings) {
  const ParameterWindows& windows = *rank.parameter_windows;
  for (std::size_t at = 0; at < list.size(); ++at) {
    std::vector<std::size_t> there, whole;
    for (const Gathering& one : gatherings) {
      const auto section = static_cast<std::size_t>(one.section);
      if (one.after <= at && at < one.until) there.push_back(section);
      if (one.before <= at && at < one.until) whole.push_back(section);
    }
    for (std::size_t a = 0; a < there.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        EXPECT_FALSE(block_of(rank, windows, there[a]).overlaps(block_of(rank, windows, there[b])))
            << to_string(list[at]);
      }
    }
    for (std::size_t s = 0; s < rank.sections.size(); ++s) {
      if (!reads(rank, rank.sections[s], list[at])) continue;
      EXPECT_EQ(std::ranges::count(whole, s), 1) << to_string(list[at]) << " section " << s;
    }
  }
}

void expect_whole_in_every_list(const Plan& plan, const RankPlan& rank) {
  ASSERT_TRUE(rank.parameter_windows) << plan.request.schedule.name;
  expect_whole_when_read(rank, plan.request.schedule.actions(rank.rank), rank.parameter_windows->training);
  expect_whole_when_read(rank, plan.validation.actions(rank.rank), rank.parameter_windows->validation);
  expect_whole_when_read(rank, plan.generation.actions(rank.rank), rank.parameter_windows->generation);
}

TEST(Windows, ParametersAreWholeWhenTheyAreRead) {
  for (const auto& [schedule, p, v] :
       {std::tuple{"breadth-first", 1, 24}, std::tuple{"breadth-first", 2, 8}, std::tuple{"interleaved", 2, 8},
        std::tuple{"interleaved-zb", 3, 4}, std::tuple{"zb-v", 2, 0}, std::tuple{"1f1b", 3, 0}}) {
    PlanRequest request = request_of(schedule, p, 4, 3, v);
    request.precision = Precision::bf16;  // with working parameters of their own windows always pay
    const Plan plan = make_plan(request);
    for (const RankPlan& rank : plan.ranks) expect_whole_in_every_list(plan, rank);
  }
}

// A stage that is a shard of a tied head alone reads nothing but what the stage before it reads as well. The rest of
// that one is let go meanwhile, and not gathered again before.
TEST(Windows, HoldBesideAStageWithoutParametersOfItsOwn) {
  PlanRequest request = request_of("breadth-first", 1, 4, 3, 5);
  request.precision = Precision::bf16;
  request.model.vocab = 5000;  // three shards
  request.partition = {6, 6, 6, 7, 1};
  const Plan plan = make_plan(request);
  ASSERT_TRUE(plan.ranks[0].parameter_windows && plan.ranks[0].parameter_windows->per_use);
  expect_whole_in_every_list(plan, plan.ranks[0]);
}

// A rank that computes one unit after the other has two of them whole: the one that computes, and the next.
TEST(Windows, OfUnitsTakeTwo) {
  const Plan plan = make_plan(request_of("breadth-first", 1, 4, 3, 24));
  const RankPlan& rank = plan.ranks[0];
  std::vector<std::int64_t> units(24, 0);  // with the tied embedding's wte in the first
  for (const Section& section : rank.sections) {
    if (section.has_parameters) units[static_cast<std::size_t>(section.stage)] += section.elements;
  }
  std::int64_t most = 0;
  for (std::size_t u = 0; u + 1 < units.size(); ++u) most = std::max(most, units[u] + units[u + 1]);
  ASSERT_TRUE(rank.parameter_windows);
  EXPECT_TRUE(rank.parameter_windows->per_use);
  // The tied embedding is read at both ends of the model: its place is one that the units at both leave free.
  EXPECT_LE(rank.parameter_windows->elements, most + units[0]);
  ASSERT_TRUE(rank.gradient_windows);
  EXPECT_LE(rank.gradient_windows->elements, most + units[0]);
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t atoms = static_cast<std::int64_t>(rank.sections.size()) * kAtomElements;
  EXPECT_LE(rank.bytes_of(MemoryUse::parameters), (rank.layout.elements / 4 + atoms) * kFloat);
  EXPECT_LE(rank.bytes_of(MemoryUse::gradient_shards), (rank.layout.gradient_elements / 4 + atoms) * kFloat);
}

// 1F1B has a stage's first W at its beginning and the last at its end: all is whole all the time.
TEST(Windows, AreNoneWhereNothingIsGained) {
  for (const char* schedule : {"1f1b", "zb-v", "dualpipe"}) {
    for (const int zero : {2, 3}) {
      const Plan plan = make_plan(request_of(schedule, 2, 2, zero));
      const Plan plain = make_plan(request_of(schedule, 2, 2, 1));
      for (std::size_t r = 0; r < 2; ++r) {
        EXPECT_FALSE(plan.ranks[r].gradient_windows) << schedule;
        EXPECT_EQ(plan.ranks[r].bytes_of(MemoryUse::gradients), plain.ranks[r].bytes_of(MemoryUse::gradients));
        EXPECT_LE(plan.ranks[r].total_bytes(), plain.ranks[r].total_bytes()) << schedule;
      }
    }
  }
}

// Gathered once where the limit allows it.
TEST(Windows, TheLimitDecidesHowOftenIsGathered) {
  PlanRequest request = request_of("breadth-first", 1, 4, 3, 24);
  request.precision = Precision::bf16;  // with working parameters of their own even what is gathered once pays
  const RankPlan often = make_plan(request).ranks[0];
  ASSERT_TRUE(often.parameter_windows && often.parameter_windows->per_use);
  request.memory_limit = std::int64_t{1} << 40;
  const RankPlan once = make_plan(request).ranks[0];
  ASSERT_TRUE(once.parameter_windows);
  EXPECT_FALSE(once.parameter_windows->per_use);
  EXPECT_GT(once.total_bytes(), often.total_bytes());
  request.memory_limit = once.total_bytes() - 1;
  EXPECT_TRUE(make_plan(request).ranks[0].parameter_windows->per_use);
}

// No reduction is awaited later than where its place is used again, and places that are used at once differ.
TEST(Windows, GradientsAreReducedBeforeTheirPlaceIsUsedAgain) {
  for (const auto& [schedule, p, v] :
       {std::tuple{"breadth-first", 1, 24}, std::tuple{"breadth-first", 2, 8}, std::tuple{"breadth-first", 3, 4}}) {
    const Plan plan = make_plan(request_of(schedule, p, 4, 2, v));
    for (const RankPlan& rank : plan.ranks) {
      ASSERT_TRUE(rank.gradient_windows) << schedule << p;
      const GradientWindows& windows = *rank.gradient_windows;
      const std::vector<Action>& list = plan.request.schedule.actions(rank.rank);
      std::vector<int> holder(static_cast<std::size_t>(windows.elements / 128), -1);
      std::vector<std::size_t> free_from(rank.sections.size(), list.size());
      for (const LoweredAction& action : lower(plan, rank.rank)) {
        if (action.kind != LoweredAction::Kind::reduce_replicas) continue;
        EXPECT_GE(action.before, action.after);
        free_from[static_cast<std::size_t>(action.section)] = action.before;
      }
      for (std::size_t at = 0; at < list.size(); ++at) {
        for (std::size_t s = 0; s < rank.sections.size(); ++s) {
          const bool streams = rank.stage_plan(list[at].stage).shape.streams_head();
          if (rank.sections[s].stage != list[at].stage || (list[at].op == Op::forward && !streams)) continue;
          const Block block = block_of(rank, windows, s);
          for (std::int64_t i = block.begin / 128; i < block.end / 128; ++i) {
            int& one = holder[static_cast<std::size_t>(i)];
            if (one >= 0 && one != static_cast<int>(s)) {
              EXPECT_LE(free_from[static_cast<std::size_t>(one)], at) << to_string(list[at]);
            }
            one = static_cast<int>(s);
          }
        }
      }
    }
  }
}

TEST(Windows, BlocksThatMeetDoNotOverlap) {
  const std::vector<std::vector<bool>> chain = {
      {false, true, false, false}, {true, false, true, false}, {false, true, false, true}, {false, false, true, false}};
  EXPECT_EQ(places_of({4, 8, 4, 8}, chain), (std::vector<std::int64_t>{0, 4, 0, 4}));
  EXPECT_EQ(places_of({4, 4, 8, 4}, chain), (std::vector<std::int64_t>{0, 8, 0, 8}));  // the largest first
  const std::vector<std::vector<bool>> all(3, std::vector<bool>(3, true));
  EXPECT_EQ(places_of({1, 2, 3}, all), (std::vector<std::int64_t>{0, 1, 3}));
}

}  // namespace
}  // namespace train_gpt::test
