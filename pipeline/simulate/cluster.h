// A cluster: hosts of equally many ranks, with fast links inside a host and slower ones between hosts; and what a
// collective of replicas takes on them. Ranks are counted as the launcher counts them, host by host; which of them form
// a pipeline, and which are the replicas of a stage, is a matter of --rank-order.
#pragma once

#include "pipeline/schedule/rank_order.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

struct Cluster {
  int ranks_per_host = 0;  // 0: all ranks are on one host
  LinkCost inside = {};    // of one direction of one rank
  LinkCost between = {};   // likewise: what a rank has of its host's network

  bool operator==(const Cluster&) const = default;
};

// p x d ranks.
struct Grid {
  int ranks = 1;     // p, of one pipeline
  int replicas = 1;  // d
  RankOrder order = RankOrder::pipeline;

  // As the launcher counts it: the inverse of rank_in_order().
  int launched(int replica, int rank) const {
    return order == RankOrder::pipeline ? replica * ranks + rank : rank * replicas + replica;
  }
};

// Between two ranks of a pipeline, in the replica where that is slowest: the others wait for it at the end of the step.
LinkCost pipeline_link(const Cluster& cluster, const Grid& grid, int source, int destination);

// The slowest link of the ring of the replicas of a pipeline's rank, which is what the whole ring runs at.
LinkCost replica_link(const Cluster& cluster, const Grid& grid, int rank);

// The p links of a pipeline, as Costs hold them: link r from rank r to rank r+1, the last one back to rank 0.
void set_links(Costs& costs, const Cluster& cluster, const Grid& grid);

// Milliseconds of a reduce-scatter, or of an all-gather, of `bytes` among d ranks: every rank sends (d-1)/d of them, in
// d-1 messages that follow each other. An all-reduce is one of each.
double ring_ms(double bytes, int replicas, const LinkCost& link);

// Of the `bytes`, what every rank sends.
double ring_bytes(double bytes, int replicas);

}  // namespace train_gpt
