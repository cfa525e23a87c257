// The generators against the lists of the public systems, item by item.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "pipeline/schedule/catalog.h"
#include "test/pipeline/schedule/golden_lists.h"

namespace train_gpt {
namespace {

std::string csv_of(const Schedule& schedule) {
  std::ostringstream text;
  write_schedule_csv(schedule, text);
  return text.str();
}

void expect_equal_lists(const std::string& family, const std::string& name, int smallest_v, int largest_v) {
  int compared = 0;
  for (const GoldenList& golden : golden_lists(family)) {
    if (golden.v < smallest_v || golden.v > largest_v) continue;
    const Schedule ours = make_schedule(
        {.name = name, .ranks = golden.p, .micro_batches = golden.m, .chunks = golden.v, .group_size = golden.g});
    EXPECT_EQ(csv_of(ours), golden.csv) << golden.title;
    EXPECT_EQ(ours.placement.kind, golden.schedule().placement.kind) << golden.title;
    ++compared;
  }
  EXPECT_GT(compared, 0) << family;
}

TEST(GoldenLists, Gpipe) { expect_equal_lists("pytorch_gpipe", "gpipe", 1, 1); }

TEST(GoldenLists, OneForwardOneBackward) {
  for (const char* family : {"pytorch_1f1b", "megatron_1f1b", "deepspeed_1f1b", "zbrepo_1f1b"}) {
    expect_equal_lists(family, "1f1b", 1, 1);
  }
}

TEST(GoldenLists, Interleaved) {
  for (const char* family : {"megatron_interleaved", "pytorch_interleaved1f1b", "zbrepo_vpp"}) {
    expect_equal_lists(family, "interleaved", 2, 4);
  }
}

TEST(GoldenLists, InterleavedZeroBubble) {
  expect_equal_lists("pytorch_interleavedzb", "zb-h1", 1, 1);
  expect_equal_lists("pytorch_interleavedzb", "interleaved-zb", 1, 4);
}

TEST(GoldenLists, ZeroBubbleH2) { expect_equal_lists("derived_zbh2", "zb-h2", 1, 1); }

TEST(GoldenLists, ZeroBubbleV) {
  expect_equal_lists("pytorch_zbv", "zb-v", 2, 2);
  expect_equal_lists("zb_zbv_handcrafted", "zb-v", 2, 2);
}

TEST(GoldenLists, DualPipe) {
  expect_equal_lists("deepseek_dualpipe", "dualpipe", 1, 1);
  expect_equal_lists("deepseek_dualpipev", "dualpipev", 2, 2);
  expect_equal_lists("pytorch_dualpipev", "dualpipev", 2, 2);
}

// The published looped BFS runs its backwards in descending micro-batch order; ours ascends.
TEST(GoldenLists, BreadthFirst) {
  for (const GoldenList& golden : golden_lists("pytorch_loopedbfs")) {
    Schedule published = golden.schedule();
    for (std::vector<Action>& list : published.lists) {
      const auto first_backward = list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2);
      std::stable_sort(first_backward, list.end(), [](const Action& a, const Action& b) {
        return a.stage != b.stage ? a.stage > b.stage : a.micro_batch < b.micro_batch;
      });
    }
    const Schedule ours =
        make_schedule({.name = "breadth-first", .ranks = golden.p, .micro_batches = golden.m, .chunks = golden.v});
    EXPECT_EQ(csv_of(ours), csv_of(published)) << golden.title;
  }
}

}  // namespace
}  // namespace train_gpt
