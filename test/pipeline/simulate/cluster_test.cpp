// Which links pipelines and replicas take, and what collectives take on them, by figures worked out by hand.
#include "pipeline/simulate/cluster.h"

#include <gtest/gtest.h>

#include <set>

#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

constexpr double kInside = 300, kBetween = 25;

Cluster hosts_of(int ranks) {
  return {.ranks_per_host = ranks, .inside = {0.001, kInside}, .between = {0.01, kBetween}};
}

TEST(Cluster, LaunchedIsTheInverseOfTheRankOrder) {
  for (const RankOrder order : {RankOrder::pipeline, RankOrder::replicas}) {
    const Grid grid{.ranks = 3, .replicas = 4, .order = order};
    std::set<int> launched;
    for (int replica = 0; replica < 4; ++replica) {
      for (int rank = 0; rank < 3; ++rank) {
        launched.insert(grid.launched(replica, rank));
        EXPECT_EQ(rank_in_order(grid.launched(replica, rank), 12, 4, order), replica * 3 + rank);
      }
    }
    EXPECT_EQ(launched.size(), 12u);
  }
}

// Two hosts of four: by default a host has a pipeline of four, and replicas are on different hosts.
TEST(Cluster, ThePipelineKeepsToAHost) {
  const Grid grid{.ranks = 4, .replicas = 2};
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(pipeline_link(hosts_of(4), grid, r, (r + 1) % 4).bandwidth, kInside) << r;
    EXPECT_EQ(replica_link(hosts_of(4), grid, r).bandwidth, kBetween) << r;
  }
}

// Then a host has two replicas of two stages each.
TEST(Cluster, OrReplicasDo) {
  const Grid grid{.ranks = 4, .replicas = 2, .order = RankOrder::replicas};
  EXPECT_EQ(pipeline_link(hosts_of(4), grid, 0, 1).bandwidth, kInside);
  EXPECT_EQ(pipeline_link(hosts_of(4), grid, 1, 2).bandwidth, kBetween);
  EXPECT_EQ(pipeline_link(hosts_of(4), grid, 2, 3).bandwidth, kInside);
  EXPECT_EQ(pipeline_link(hosts_of(4), grid, 3, 0).bandwidth, kBetween);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(replica_link(hosts_of(4), grid, r).bandwidth, kInside) << r;
  Costs costs;
  set_links(costs, hosts_of(4), grid);
  EXPECT_EQ(costs.bandwidth, (std::vector<double>{kInside, kBetween, kInside, kBetween}));
  EXPECT_EQ(costs.latency, (std::vector<double>{0.001, 0.01, 0.001, 0.01}));
}

// Hosts of four and pipelines of three: 0 1 2 | 3 with 4 5 | 6 7 with 8 and so on: each hop crosses hosts in one of
// them.
TEST(Cluster, TheSlowestReplicaCounts) {
  const Grid grid{.ranks = 3, .replicas = 4};
  EXPECT_EQ(pipeline_link(hosts_of(4), grid, 0, 1).bandwidth, kBetween);  // 3 -> 4
  EXPECT_EQ(pipeline_link(hosts_of(4), grid, 1, 2).bandwidth, kBetween);  // 7 -> 8
  EXPECT_EQ(pipeline_link(hosts_of(12), grid, 0, 1).bandwidth, kInside);
  EXPECT_EQ(pipeline_link(hosts_of(0), grid, 0, 1).bandwidth, kInside);
}

TEST(Cluster, RingsTakeTheTimeOfTheirBytes) {
  // 3/4 of 1 GB at 10 GB/s, in three messages
  EXPECT_DOUBLE_EQ(ring_ms(1e9, 4, {0.1, 10}), 3 * 0.1 + 75);
  EXPECT_DOUBLE_EQ(ring_ms(1e9, 2, {0, 10}), 50);
  EXPECT_DOUBLE_EQ(ring_ms(1e9, 4, {0.1, 0}), 0.3);  // endless bandwidth
  EXPECT_DOUBLE_EQ(ring_ms(1e9, 1, {0.1, 10}), 0);
  EXPECT_DOUBLE_EQ(ring_bytes(1e9, 4), 7.5e8);
}

// Links of a cluster are links as --cost-comm and --cost-bandwidth give them.
TEST(Cluster, HopsOfAScheduleTakeItsLinks) {
  const Schedule schedule = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 1});
  Costs costs;
  costs.message_bytes = 1e6;
  set_links(costs, {.ranks_per_host = 1, .between = {0.5, 2}}, {.ranks = 2});
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).makespan, 6 + 2 * (0.5 + 0.5));
  set_links(costs, {.ranks_per_host = 2, .between = {0.5, 2}}, {.ranks = 2});
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).makespan, 6);
}

}  // namespace
}  // namespace train_gpt
