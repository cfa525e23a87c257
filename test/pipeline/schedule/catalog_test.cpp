// The promise of the catalog: every request gives a valid schedule with the stated properties or a refusal that helps.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>

#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/channels.h"
#include "pipeline/simulate/check_schedule.h"

namespace train_gpt {
namespace {

std::string title(const ScheduleRequest& request) {
  return request.name + " p=" + std::to_string(request.ranks) + " m=" + std::to_string(request.micro_batches) +
         " v=" + std::to_string(request.chunks) + " g=" + std::to_string(request.group_size);
}

void expect_violation(const ScheduleRequest& request, const std::string& text) {
  EXPECT_EQ(violation(request).value_or("none"), text);
  EXPECT_THROW(make_schedule(request), std::invalid_argument) << title(request);
}

TEST(Catalog, NamesAndDefaultChunksInTheOrderOfTheTable) {
  const std::vector<std::pair<std::string, int>> expected = {
      {"gpipe", 1}, {"1f1b", 1},           {"interleaved", 2}, {"breadth-first", 2}, {"zb-h1", 1},
      {"zb-h2", 1}, {"interleaved-zb", 2}, {"zb-v", 2},        {"1f1b-v", 2},        {"v-half", 2},
      {"v-min", 2}, {"dualpipe", 1},       {"dualpipev", 2}};
  std::vector<std::pair<std::string, int>> found;
  for (const std::string& name : schedule_names()) found.emplace_back(name, default_chunks(name));
  EXPECT_EQ(found, expected);
}

TEST(Catalog, Defaults) {
  for (const std::string& name : schedule_names()) {
    const ScheduleRequest matching{.name = name, .ranks = 4, .micro_batches = 8, .chunks = default_chunks(name)};
    EXPECT_FALSE(violation(matching)) << name;
    EXPECT_EQ(make_schedule(matching).name, name);
  }
  // g: smallest >= p with m mod g = 0 or >= p.
  EXPECT_EQ(default_group_size(4, 8), 4);
  EXPECT_EQ(default_group_size(4, 9), 5);
  EXPECT_EQ(default_group_size(4, 11), 6);
  EXPECT_EQ(default_group_size(4, 5), 5);
  EXPECT_EQ(default_group_size(4, 3), 3);
}

TEST(Catalog, TheLargestListsAreThoseOf2To28Passes) {
  EXPECT_FALSE(violation({.name = "1f1b", .ranks = 1 << 14, .micro_batches = 1 << 14}));
  EXPECT_TRUE(violation({.name = "1f1b", .ranks = 1 << 14, .micro_batches = (1 << 14) + 1}));
}

TEST(Catalog, RefusalsNameTheNearestLegalValues) {
  std::string names;
  for (const std::string& name : schedule_names()) names += (names.empty() ? "" : ", ") + name;
  expect_violation({.name = "zigzag"}, "--schedule zigzag: no such schedule; there are " + names + " and auto");
  expect_violation({.name = "dualpipe", .ranks = 3, .micro_batches = 8},
                   "schedule dualpipe needs an even number of stages, but there are 3: nearest legal values: 2 and 4");
  expect_violation({.name = "dualpipe", .ranks = 1, .micro_batches = 8},
                   "schedule dualpipe needs an even number of stages, but there are 1: nearest legal values: 2");
  expect_violation({.name = "dualpipe", .ranks = 4, .micro_batches = 9},
                   "--micro-batches 9: schedule dualpipe at 4 stages needs an even number, at least 8: nearest legal "
                   "values: 8 and 10");
  expect_violation({.name = "dualpipe", .ranks = 4, .micro_batches = 5},
                   "--micro-batches 5: schedule dualpipe at 4 stages needs an even number, at least 8: nearest legal "
                   "values: 8");
  expect_violation({.name = "dualpipev", .ranks = 4, .micro_batches = 7},
                   "--micro-batches 7: schedule dualpipev at 4 stages needs at least 8: nearest legal values: 8");
  expect_violation({.name = "zb-v", .ranks = 4, .micro_batches = 8, .chunks = 3},
                   "--chunks 3: schedule zb-v always has 2 virtual stages per rank: say 2 or nothing");
  expect_violation({.name = "interleaved", .ranks = 4, .micro_batches = 8, .chunks = -1},
                   "--chunks -1: schedule interleaved needs at least 1 virtual stage per rank (default 2)");
  expect_violation({.name = "1f1b", .ranks = 4, .micro_batches = 0},
                   "--micro-batches 0: a step needs at least 1 micro-batch");
  expect_violation(
      {.name = "interleaved", .ranks = 4, .micro_batches = 11, .group_size = 5},
      "--group-size 5: schedule interleaved at 4 stages and 11 micro-batches needs a size from 4 to 11 that "
      "divides the micro-batches or leaves a last group of at least 4: nearest legal values: 6");
  expect_violation(
      {.name = "interleaved", .ranks = 4, .micro_batches = 16, .group_size = 7},
      "--group-size 7: schedule interleaved at 4 stages and 16 micro-batches needs a size from 4 to 16 that "
      "divides the micro-batches or leaves a last group of at least 4: nearest legal values: 6 and 8");
  expect_violation({.name = "1f1b", .ranks = 4, .micro_batches = 8, .group_size = 4},
                   "--group-size 4: schedule 1f1b has no groups; interleaved and interleaved-zb have");
  EXPECT_TRUE(violation({.name = "1f1b", .ranks = 2000000000, .micro_batches = 2000000000}));
}

// The bitwise contract: per stage, F, I and W each come in micro-batch order.
void expect_micro_batch_order(const Schedule& schedule, const std::string& where) {
  for (const std::vector<Action>& list : schedule.lists) {
    std::vector<std::array<int, 3>> last(schedule.placement.stages.size(), {-1, -1, -1});
    for (const Action& action : list) {
      auto& [forward, input, weight] = last[static_cast<std::size_t>(action.stage)];
      const auto after = [&](int& previous) {
        EXPECT_LT(previous, action.micro_batch) << where << " " << to_string(action);
        previous = action.micro_batch;
      };
      if (action.op == Op::forward) after(forward);
      if (action.op == Op::backward || action.op == Op::backward_input) after(input);
      if (action.op == Op::backward || action.op == Op::backward_weight) after(weight);
    }
  }
}

TEST(Catalog, RandomRequestsAreValidOrRefused) {
  std::mt19937 random(3);
  const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int made = 0;
  for (int k = 0; k < 1500; ++k) {
    const int last = static_cast<int>(schedule_names().size()) - 1;
    ScheduleRequest request{.name = schedule_names()[static_cast<std::size_t>(between(0, last))],
                            .ranks = between(1, 16),
                            .micro_batches = between(1, 40)};
    if (takes_chunks(request.name)) request.chunks = between(1, 4);
    if (takes_group_size(request.name) && k % 2 == 0) request.group_size = between(1, 40);
    if (violation(request)) {
      EXPECT_THROW(make_schedule(request), std::invalid_argument) << title(request);
      continue;
    }
    ++made;
    const Schedule schedule = make_schedule(request);
    try {
      const ScheduleCheck check = check_schedule(schedule);
      EXPECT_TRUE(check.notices.empty()) << title(request);
      EXPECT_EQ(check.channels.size(), channels(schedule).size()) << title(request);
    } catch (const std::invalid_argument& error) {
      ADD_FAILURE() << title(request) << ": " << error.what();
    }
    expect_micro_batch_order(schedule, title(request));
  }
  EXPECT_GT(made, 900);
}

// The corners that other systems refuse or hang at, for every schedule that is defined there.
TEST(Catalog, SmallAndOddSizes) {
  for (const std::string& name : schedule_names()) {
    for (const int p : {1, 2, 3, 5, 7}) {
      for (int m = 1; m <= 2 * p + 1; ++m) {
        const ScheduleRequest request{.name = name, .ranks = p, .micro_batches = m};
        const bool dual = name.starts_with("dualpipe");
        if (violation(request)) {
          EXPECT_TRUE(dual) << title(request);
          continue;
        }
        EXPECT_NO_THROW(check_schedule(make_schedule(request))) << title(request);
      }
    }
  }
}

TEST(Catalog, EveryLegalGroupSizeRuns) {
  for (const char* name : {"interleaved", "interleaved-zb"}) {
    for (int p = 1; p <= 6; ++p) {
      for (int m = 1; m <= 4 * p; ++m) {
        for (int g = 1; g <= m; ++g) {
          const ScheduleRequest request{.name = name, .ranks = p, .micro_batches = m, .group_size = g};
          if (!violation(request)) {
            EXPECT_NO_THROW(check_schedule(make_schedule(request))) << title(request);
          }
        }
      }
    }
  }
}

TEST(Placement, Tables) {
  const Placement loop = Placement::loop(2, 2, 4);
  EXPECT_EQ(loop.depth(), 4);
  EXPECT_EQ(loop.stages_of(1), (std::vector<int>{1, 3}));
  const Placement v = Placement::v_shape(3, 4);
  EXPECT_EQ(v.stages_of(0), (std::vector<int>{0, 5}));
  EXPECT_EQ(v.stages[2].next, 3);
  EXPECT_EQ(v.stages[5].next, -1);
  const Placement both_ways = Placement::bidirectional(4, 8);
  EXPECT_EQ(both_ways.depth(), 4);
  EXPECT_EQ(both_ways.stages_of(3), (std::vector<int>{3, 4}));
  EXPECT_EQ(both_ways.stages[4].previous, -1);
  EXPECT_EQ(both_ways.stages[4].copy, 1);
  EXPECT_EQ(both_ways.stages[4].first_micro_batch, 4);
  EXPECT_EQ(both_ways.stages[3].last_micro_batch, 4);
}

TEST(Channels, NoMessageBetweenStagesOfOneRank) {
  const Schedule v = make_schedule({.name = "zb-v", .ranks = 2, .micro_batches = 4});
  const ChannelTable table(v.placement);
  EXPECT_EQ(table.channels().size(), 4u);  // both kinds in both directions
  const auto turn = table.messages({.op = Op::forward, .stage = 1});
  EXPECT_GE(turn.consumes, 0);
  EXPECT_EQ(turn.produces, -1);
  const auto last = table.messages({.op = Op::backward_input, .stage = 3});
  EXPECT_EQ(last.consumes, -1);
  EXPECT_EQ(table.channels()[static_cast<std::size_t>(last.produces)], (Channel{0, 1, Channel::Kind::gradient}));
  const auto weight = table.messages({.op = Op::backward_weight, .stage = 1});
  EXPECT_EQ(weight.consumes, -1);
  EXPECT_EQ(weight.produces, -1);
}

}  // namespace
}  // namespace train_gpt
