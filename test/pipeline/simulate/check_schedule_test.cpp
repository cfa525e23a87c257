// The check of a schedule: what it must refuse, in which words, and how many slots it counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/check_schedule.h"
#include "test/pipeline/schedule/golden_lists.h"

namespace train_gpt {
namespace {

std::string refusal(const Schedule& schedule) {
  try {
    check_schedule(schedule);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

Schedule csv(const std::string& text) { return parse_schedule_csv(text, "file.csv"); }

void expect_refused(const std::string& text, const std::string& reason) {
  const std::string answer = refusal(csv(text));
  EXPECT_NE(answer.find(reason), std::string::npos) << text << "\n" << answer;
}

TEST(Validate, AcceptsEveryPublishedList) {
  const std::vector<std::string> families = {"pytorch_gpipe",
                                             "pytorch_1f1b",
                                             "megatron_1f1b",
                                             "deepspeed_1f1b",
                                             "zbrepo_1f1b",
                                             "megatron_interleaved",
                                             "pytorch_interleaved1f1b",
                                             "zbrepo_vpp",
                                             "pytorch_loopedbfs",
                                             "pytorch_interleavedzb",
                                             "derived_zbh2",
                                             "pytorch_zbv",
                                             "zb_zbv_handcrafted",
                                             "deepseek_dualpipe",
                                             "deepseek_dualpipev",
                                             "pytorch_dualpipev",
                                             "zb_1f1bv",
                                             "zb_auto_1p",
                                             "zb_auto_2p",
                                             "zb_vhalf",
                                             "zb_vmin",
                                             "zb_zbv_auto",
                                             "zbh1_quickstart",
                                             "zbrepo_gis"};
  for (const std::string& family : families) {
    for (const GoldenList& golden : golden_lists(family)) {
      EXPECT_EQ(refusal(golden.schedule()), "accepted") << golden.title;
      EXPECT_EQ(golden.schedule().micro_batches, golden.m) << golden.title;
      EXPECT_EQ(golden.schedule().chunks, golden.v) << golden.title;
    }
  }
}

TEST(Validate, RefusesTheKnownBadList) {
  for (const GoldenList& golden : golden_lists("BAD_pytorch_1f1b_ir")) {
    EXPECT_NE(refusal(golden.schedule()).find("before 3F0"), std::string::npos) << refusal(golden.schedule());
  }
}

TEST(Validate, RefusesIncompleteLists) {
  expect_refused("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n", "0B1 is missing in the list of rank 0");
  expect_refused("0F0,0B0,0B1\n1F0,1B0,1F1,1B1\n", "rank 0 runs 0B1 before 0F1");
  expect_refused("0F0,0I0\n1F0,1B0\n", "0W0 is missing");
  expect_refused("0F0,0F0,0B0\n1F0,1B0\n", "rank 0 runs 0F0 twice");
  expect_refused("0F0,0B0,0W0\n1F0,1B0\n", "rank 0 runs 0W0 after another B or W");
  expect_refused("0F0,0I0,0B0\n1F0,1B0\n", "rank 0 runs 0B0 after another backward");
}

TEST(Validate, RefusesNumbersThatAreFarTooLarge) {
  std::string row;
  for (int i = 0; i < 9; ++i) row += "0F" + std::to_string(i) + ",0B" + std::to_string(i) + ",";
  expect_refused(row + "0F17\n", "0F9 is missing");
  expect_refused("0F0,0F4,0B0\n1F0,1F1,2F0\n", "6 actions for 3 stages and 5 micro-batches");
}

TEST(Validate, RefusesWrongOrderOnOneRank) {
  expect_refused("0F0,0W0,0I0\n1F0,1B0\n", "rank 0 runs 0W0 before 0I0");
  expect_refused("1F0,0F0,1B0,0B0\n", "rank 0 runs 1F0 before 0F0");
  expect_refused("0F0,1F0,0B0,1B0\n", "rank 0 runs 0B0 before 1B0");
}

TEST(Validate, RefusesMicroBatchesThatAreNotTheStages) {
  Schedule schedule = make_schedule({.name = "dualpipe", .ranks = 2, .micro_batches = 4});
  schedule.lists[0][0].micro_batch = 3;
  EXPECT_NE(refusal(schedule).find("takes micro-batches 0 to 1"), std::string::npos) << refusal(schedule);
  schedule = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 4});
  schedule.lists[0][0].stage = 1;
  EXPECT_NE(refusal(schedule).find("lives on rank 1"), std::string::npos) << refusal(schedule);
  schedule.lists[0][0].stage = 7;
  EXPECT_NE(refusal(schedule).find("no such stage"), std::string::npos) << refusal(schedule);
}

TEST(Validate, RefusesMessagesOutOfOrder) {
  expect_refused("0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0\n",
                 "rank 1 runs 1F1 when the next activation from rank 0 is that of 0F0");
  expect_refused("0F0,0F1,0B1,0B0\n1F0,1F1,1B0,1B1\n", "rank 0 runs 0B1 when the next gradient from rank 1");
}

TEST(Validate, SaysForWhichSlotsARankWaits) {
  const Schedule schedule = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 2});
  std::vector<ChannelSlots> slots = check_schedule(schedule).channels;
  EXPECT_FALSE(blocking_cycle(schedule, slots));
  for (ChannelSlots& channel : slots) channel.receive = 0;
  EXPECT_EQ(
      blocking_cycle(schedule, slots),
      "schedule 1f1b cannot run, ranks wait for each other in a circle: rank 0 at 0F0 waits for rank 1 to take one "
      "of the 0 activations that fill all slots, rank 1 at 1F0 waits for the activation from rank 0, which is "
      "where it began");
}

TEST(Validate, SaysWhichRanksBlockEachOther) {
  // Each rank starts with what the other one can only deliver afterwards.
  const std::string answer = refusal(csv("0F0,0B0,2F0,2B0\n1F0,1B0,3F0,3B0\n"));
  EXPECT_NE(answer.find("ranks wait for each other in a circle"), std::string::npos) << answer;
  EXPECT_NE(answer.find("rank 0 at 0B0 waits for the gradient from rank 1"), std::string::npos) << answer;
}

TEST(Validate, FusedPairsAwaitBothInputs) {
  expect_refused("(0F0;0B0)OVERLAP_F_B\n1F0,1B0\n", "rank 0 runs 0B0 before 0F0");
  Schedule schedule = csv("0F0,0B0\n1F0,1B0\n");
  schedule.lists[0][1].fused_with_next = true;
  EXPECT_NE(refusal(schedule).find("fused with what follows"), std::string::npos) << refusal(schedule);
}

TEST(Validate, AcceptsWhatIsOutOfMicroBatchOrderWithANotice) {
  const ScheduleCheck descending = check_schedule(csv("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n"));
  ASSERT_EQ(descending.notices.size(), 1u);
  EXPECT_NE(descending.notices[0].find("out of micro-batch order (0B0 comes after micro-batch 1)"), std::string::npos)
      << descending.notices[0];
  // A streamed head adds to its gradient in F.
  const ScheduleCheck forwards = check_schedule(csv("0F1,0F0,0B0,0B1\n1F1,1F0,1B0,1B1\n"));
  ASSERT_EQ(forwards.notices.size(), 1u);
  EXPECT_NE(forwards.notices[0].find("out of micro-batch order (0F0 comes after micro-batch 1)"), std::string::npos)
      << forwards.notices[0];
  EXPECT_TRUE(check_schedule(csv("0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1F1,1I0,1I1,1W0,1W1\n")).notices.empty());
}

TEST(Validate, CountsTheSlotsOfInterleavedGroups) {
  const Schedule schedule =
      make_schedule({.name = "interleaved", .ranks = 8, .micro_batches = 32, .chunks = 2, .group_size = 16});
  std::vector<ChannelSlots> slots = check_schedule(schedule).channels;
  int deepest = 0;
  for (const ChannelSlots& channel : slots) deepest = std::max(deepest, channel.receive);
  EXPECT_EQ(deepest, 12);
  const auto runs_with = [&](int receive) {
    for (ChannelSlots& channel : slots) channel.receive = receive;
    return !blocking_cycle(schedule, slots).has_value();
  };
  std::string answer;
  for (int k = 1; k <= 12; ++k) answer += runs_with(k) ? "1" : "0";
  EXPECT_EQ(answer, "000000011111");
}

TEST(Validate, OneForwardOneBackwardNeedsNoMoreThanTwoSlots) {
  const ScheduleCheck check = check_schedule(make_schedule({.name = "1f1b", .ranks = 4, .micro_batches = 8}));
  ASSERT_EQ(check.channels.size(), 6u);
  for (const ChannelSlots& slots : check.channels) {
    EXPECT_EQ(slots.receive, 2);
    EXPECT_EQ(slots.send, 2);
    EXPECT_EQ(slots.messages, 8);
  }
  EXPECT_TRUE(check_schedule(make_schedule({.name = "1f1b", .ranks = 1, .micro_batches = 8})).channels.empty());
}

}  // namespace
}  // namespace train_gpt
