// The search over layouts: against looking at every layout alone, and by what can be worked out by hand.
#include "pipeline/planner/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "pipeline/planner/layout_candidates.h"

namespace train_gpt {
namespace {

constexpr std::int64_t kSeqLen = 64;

LayoutRequest small_request(int ranks, std::int64_t rows, double flops_per_second = 1e12) {
  LayoutRequest request;
  request.base.model = {.layers = 4, .heads = 4, .hidden = 256, .vocab = 5000, .max_seq_len = kSeqLen};
  request.base.batch.seq_len = kSeqLen;
  request.ranks = ranks;
  request.rows = rows;
  request.row = costs_at_speed(request.base.model, kSeqLen, flops_per_second);
  request.held.chunks = {1, 2};
  return request;
}

Cluster hosts_of(int ranks, double inside, double between) {
  return {.ranks_per_host = ranks, .inside = {0.001, inside}, .between = {0.01, between}};
}

// One layout alone, by holding all of it.
std::vector<PlannedLayout> alone(LayoutRequest request, const RankLayout& layout, const Cluster& cluster) {
  request.held.ranks = layout.ranks;
  request.held.replicas = layout.replicas;
  request.held.zero = layout.zero;
  request.held.rows = layout.rows;
  request.held.schedule = layout.schedule;
  request.held.order = layout.order;
  if (layout.ranks > 1) request.held.chunks = {layout.chunks};
  return LayoutSearch(request).best(cluster, LayoutKind::any, 1);
}

// No bound is above what it bounds: looking at every layout finds nothing faster, with and without a memory limit.
TEST(Layouts, NothingThatWasLeftOutIsFaster) {
  LayoutRequest request = small_request(4, 8);
  for (const std::int64_t limit : {std::int64_t{0}, std::int64_t{48} << 20}) {
    request.memory_limit = limit;
    for (const Cluster& cluster : {hosts_of(2, 20, 0.5), hosts_of(4, 5, 5)}) {
      const std::vector<PlannedLayout> best = LayoutSearch(request).best(cluster, LayoutKind::any, 100);
      ASSERT_FALSE(best.empty());
      std::map<std::pair<int, int>, double> fastest;
      for (const RankLayout& layout : layout_candidates(request, cluster)) {
        for (const PlannedLayout& it : alone(request, layout, cluster)) {
          const auto [entry, fresh] = fastest.try_emplace({layout.ranks, layout.zero}, it.step_ms);
          if (!fresh) entry->second = std::min(entry->second, it.step_ms);
          EXPECT_TRUE(limit == 0 || it.bytes <= limit);
        }
      }
      EXPECT_EQ(best.size(), fastest.size());
      for (const PlannedLayout& it : best) {
        const double least = fastest.at({it.layout.ranks, it.layout.zero});
        EXPECT_NEAR(it.step_ms, least, 1e-9 * least) << it.layout.schedule;
      }
      EXPECT_TRUE(std::ranges::is_sorted(best, {}, &PlannedLayout::step_ms));
    }
  }
}

// A rank alone computes 3 * (third of the operations) for every row.
TEST(Layouts, OneRankTakesTheTimeOfItsOperations) {
  const LayoutRequest request = small_request(1, 4, 1e9);
  double flops = 0;
  for (int u = 0; u < unit_count(request.base.model); ++u) {
    const bool embedding = u == 0;  // which has no input to take a gradient of
    flops += (embedding ? 2 : 3) * third_of_flops_per_token(request.base.model, kSeqLen, u) * kSeqLen;
  }
  const std::vector<PlannedLayout> best = LayoutSearch(request).best({}, LayoutKind::any, 10);
  ASSERT_EQ(best.size(), 1u);
  EXPECT_NEAR(best.front().step_ms, 4 * 1000 * flops / 1e9, 1e-6 * best.front().step_ms);
  EXPECT_EQ(best.front().sent_bytes, 0);
  EXPECT_NEAR(best.front().idle, 0, 1e-9);
}

// Where computing takes no time, replicas take that of their all-reduce: twice (d-1)/d of 4 bytes a parameter.
TEST(Layouts, ReplicasTakeTheTimeOfTheirBytes) {
  LayoutRequest request = small_request(4, 4, 1e30);
  request.held.ranks = 1;
  request.held.zero = 0;
  request.held.schedule = "1f1b";
  const std::vector<PlannedLayout> best = LayoutSearch(request).best({.inside = {0, 10}}, LayoutKind::any, 10);
  ASSERT_EQ(best.size(), 1u);
  // One arena, whose tensors are padded; the tied embedding's second gradient is reduced, too.
  const ModelConfig& model = request.base.model;
  const auto wte = static_cast<double>(model.padded_vocab() * model.hidden);
  const double gradients = 4 * (static_cast<double>(parameter_count(model)) + wte +
                                static_cast<double>((model.padded_vocab() - model.vocab) * model.hidden));
  EXPECT_NEAR(best.front().sent_bytes, 2 * 0.75 * gradients, 0.01 * gradients);
  EXPECT_NEAR(best.front().step_ms, best.front().sent_bytes / 1e7, 1e-6);
  EXPECT_NEAR(best.front().exposed_ms, best.front().step_ms, 1e-6);
}

// Sharded parameters travel twice where they are let go in between, and gradients once: half as much again as an
// all-reduce. In bf16 they travel in half the bytes, and once where there is memory to keep them.
TEST(Layouts, ShardedParametersTravelAsWell) {
  LayoutRequest request = small_request(4, 4, 1e30);
  request.held.ranks = 1;
  request.held.schedule = "breadth-first";  // one stage alone would be whole from the first action to the last
  const auto sent = [&](int zero, std::int64_t limit) {
    request.held.zero = zero;
    request.memory_limit = limit;
    return LayoutSearch(request).best({.inside = {0, 10}}, LayoutKind::any, 1).at(0).sent_bytes;
  };
  EXPECT_NEAR(sent(1, 0), sent(0, 0), 0.2 * sent(0, 0));  // the head's gradients of a tied embedding are reduced alone
  EXPECT_GT(sent(3, 0), 1.2 * sent(1, 0));
  EXPECT_LT(sent(3, 0), 1.7 * sent(1, 0));
  request.base.precision = Precision::bf16;
  EXPECT_LT(sent(3, std::int64_t{1} << 30), 0.9 * sent(3, 0));
}

// The middle rank of three sends activations on and gradients back: each of b x T x C floats.
TEST(Layouts, PipelinesSendTheirMessages) {
  LayoutRequest request = small_request(3, 4);
  request.held.ranks = 3;
  request.held.schedule = "1f1b";
  const std::vector<PlannedLayout> best = LayoutSearch(request).best({.inside = {0, 10}}, LayoutKind::any, 1);
  ASSERT_EQ(best.size(), 1u);
  // Whole heads only: a shard's chain carries more.
  const double message = 4.0 * static_cast<double>(kSeqLen * request.base.model.hidden);
  EXPECT_GE(best.front().sent_bytes, 2 * 4 * message);
  EXPECT_LT(best.front().sent_bytes, 2.2 * 4 * message);
}

TEST(Layouts, NeighboursAreWhatTheLinksAskFor) {
  // Messages are small, gradients large: replicas belong on one host where links between hosts are slow.
  LayoutRequest request = small_request(4, 8, 1e13);
  request.held.ranks = 2;
  const std::vector<PlannedLayout> best = LayoutSearch(request).best(hosts_of(2, 100, 1), LayoutKind::any, 1);
  ASSERT_EQ(best.size(), 1u);
  EXPECT_EQ(best.front().layout.order, RankOrder::replicas);
}

// At the speed where the answer turns FSDP is faster, a little below it is not.
TEST(Layouts, TheTurnIsWhereOneTakesOverFromTheOther) {
  const LayoutRequest request = small_request(4, 16, 1e12);
  LayoutSearch search(request);
  const auto hosts = [](double between) {
    return Cluster{.ranks_per_host = 2, .inside = {0.001, 50}, .between = {0.001, between}};
  };
  const LayoutSearch::Turn turn = search.turn(hosts(1));
  ASSERT_EQ(turn.at, LayoutSearch::Turn::At::bandwidth);
  const auto fsdp_less_pipeline = [&](double bandwidth) {
    const Cluster other = hosts(bandwidth);
    return search.best(other, LayoutKind::fsdp, 1).at(0).step_ms -
           search.best(other, LayoutKind::pipeline, 1).at(0).step_ms;
  };
  EXPECT_LT(fsdp_less_pipeline(turn.bandwidth), 0);
  EXPECT_GE(fsdp_less_pipeline(turn.bandwidth / 1.02), 0);
}

TEST(Layouts, WhatDoesNotFitIsRefusedAndTheClosestNamed) {
  LayoutRequest request = small_request(2, 4);
  request.memory_limit = 1 << 20;
  LayoutSearch search(request);
  EXPECT_TRUE(search.best({.inside = {0, 10}}, LayoutKind::any, 10).empty());
  ASSERT_TRUE(search.closest().has_value());
  EXPECT_GT(search.closest()->bytes, request.memory_limit);
  // With that much, it fits.
  request.memory_limit = search.closest()->bytes;
  const std::vector<PlannedLayout> best = LayoutSearch(request).best({.inside = {0, 10}}, LayoutKind::any, 10);
  ASSERT_FALSE(best.empty());
  for (const PlannedLayout& it : best) EXPECT_LE(it.bytes, request.memory_limit);
}

TEST(Layouts, MicroBatchesAreNoSmallerThanThoseThatWereMeasured) {
  LayoutRequest request = small_request(4, 32);
  request.least_rows = 4;
  std::set<std::int64_t> sizes;
  for (const RankLayout& layout : layout_candidates(request, {})) sizes.insert(layout.rows);
  EXPECT_EQ(*sizes.begin(), 4);
  for (const RankLayout& layout : layout_candidates(request, {})) {
    EXPECT_EQ(layout.rows * layout.micro_batches * layout.replicas, 32);
    EXPECT_EQ(layout.ranks * layout.replicas, 4);
  }
}

}  // namespace
}  // namespace train_gpt
