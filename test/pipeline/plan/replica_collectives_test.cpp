// The lowered reductions and gathers of a plan, with their bytes and places, by figures worked out by hand.
#include "pipeline/plan/replica_collectives.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

const LinkCost kLink = {0, 1};  // 10^6 bytes per millisecond

struct Case {
  int zero = 0;
  std::string schedule = "1f1b";
  int chunks = 1;
  Precision precision = Precision::fp32;
};

Plan plan_of(const Case& wanted, int ranks = 2, int replicas = 4) {
  PlanRequest request;
  request.model = {.layers = 3, .heads = 2, .hidden = 256, .vocab = 1000, .max_seq_len = 32, .tied = false};
  request.batch = {.rows = 1, .seq_len = 32, .micro_batches = 4, .replicas = replicas, .groups = replicas};
  request.schedule =
      make_schedule({.name = wanted.schedule, .ranks = ranks, .micro_batches = 4, .chunks = wanted.chunks});
  request.partition = uniform_partition(request.model, request.schedule.placement.depth());
  request.precision = wanted.precision;
  request.zero = wanted.zero;
  return make_plan(request);
}

std::vector<Collective> of_rank(const Plan& plan, int rank) {
  const std::vector<LinkCost> links(plan.ranks.size(), kLink);
  return replica_collectives(plan, links)[static_cast<std::size_t>(rank)];
}

double bytes_of(const std::vector<Collective>& all, Collective::Kind kind) {
  double bytes = 0;
  for (const Collective& one : all) bytes += one.kind == kind ? one.bytes : 0;
  return bytes;
}

TEST(ReplicaCollectives, NothingIsExchangedByOneReplica) { EXPECT_TRUE(of_rank(plan_of({}, 2, 1), 0).empty()); }

// Twice 3/4 of 4 bytes per parameter, as soon as the last backward is done.
TEST(ReplicaCollectives, ReplicasReduceAllGradients) {
  const Plan plan = plan_of({});
  for (int r = 0; r < 2; ++r) {
    const std::vector<Collective> all = of_rank(plan, r);
    ASSERT_EQ(all.size(), 1u);
    const auto elements = static_cast<double>(plan.ranks[static_cast<std::size_t>(r)].layout.elements);
    EXPECT_EQ(all[0].kind, Collective::Kind::reduce);
    EXPECT_EQ(all[0].after, plan.request.schedule.actions(r).size());
    EXPECT_DOUBLE_EQ(all[0].bytes, 2 * 0.75 * 4 * elements);
    EXPECT_DOUBLE_EQ(all[0].ms, all[0].bytes / 1e6);
  }
}

// Half of it for gradients; parameters are gathered when the step begins, before the first action.
TEST(ReplicaCollectives, ShardsAreGatheredBeforeTheFirstForward) {
  const Plan plan = plan_of({.zero = 1});
  const std::vector<Collective> all = of_rank(plan, 0);
  ASSERT_EQ(all.size(), 2u);
  const auto elements = static_cast<double>(plan.ranks[0].layout.elements);
  EXPECT_EQ(all[0].kind, Collective::Kind::gather);
  EXPECT_EQ(all[0].after, 0u);
  EXPECT_EQ(all[0].before, 0u);
  EXPECT_DOUBLE_EQ(all[0].bytes, 0.75 * 4 * elements);
  EXPECT_DOUBLE_EQ(all[1].bytes, 0.75 * 4 * elements);
  EXPECT_EQ(all[1].kind, Collective::Kind::reduce);
}

// One rank, every stage in turn: each is gathered while the one before it computes, and again for the backwards, of
// which the last stage's follow its forwards.
TEST(ReplicaCollectives, FsdpGathersEachStageWhileTheOneBeforeComputes) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const Plan plan = plan_of({.zero = 3, .schedule = "breadth-first", .chunks = 8, .precision = precision}, 1);
    ASSERT_TRUE(plan.ranks[0].parameter_windows.has_value());
    const std::vector<Collective> all = of_rank(plan, 0);
    const double element = precision == Precision::fp32 ? 4 : 2;
    double once = 0, last = 0;
    for (const Section& section : plan.ranks[0].sections) {
      once += static_cast<double>(section.elements);
      if (section.stage == 7) last += static_cast<double>(section.elements);
    }
    EXPECT_DOUBLE_EQ(bytes_of(all, Collective::Kind::gather), 0.75 * element * (2 * once - last));
    EXPECT_DOUBLE_EQ(bytes_of(all, Collective::Kind::reduce), 0.75 * 4 * once);
    // Stage s begins with action 4s: its forwards of four micro-batches.
    for (const Collective& one : all) {
      if (one.kind != Collective::Kind::gather || one.before > 28) continue;
      EXPECT_EQ(one.before, 4u * static_cast<std::size_t>(one.stage));
      EXPECT_EQ(one.after, one.stage < 2 ? 0u : one.before - 4);
    }
    EXPECT_TRUE(std::ranges::is_sorted(all, {}, &Collective::after));
  }
}

}  // namespace
}  // namespace train_gpt
