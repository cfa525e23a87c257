#include "pipeline/simulate/cluster.h"

#include <algorithm>

namespace train_gpt {
namespace {

constexpr double kBytesPerMillisecond = 1e6;  // of 1 GB/s

// As slow as the slower of the two in every way.
LinkCost worse(const LinkCost& a, const LinkCost& b) {
  LinkCost link;
  link.latency = std::max(a.latency, b.latency);
  const bool one_is_infinite = a.bandwidth == 0 || b.bandwidth == 0;
  link.bandwidth = one_is_infinite ? std::max(a.bandwidth, b.bandwidth) : std::min(a.bandwidth, b.bandwidth);
  return link;
}

const LinkCost& link_between(const Cluster& cluster, int a, int b) {
  const int k = cluster.ranks_per_host;
  return k == 0 || a / k == b / k ? cluster.inside : cluster.between;
}

}  // namespace

LinkCost pipeline_link(const Cluster& cluster, const Grid& grid, int source, int destination) {
  LinkCost slowest = link_between(cluster, grid.launched(0, source), grid.launched(0, destination));
  for (int replica = 1; replica < grid.replicas; ++replica) {
    slowest =
        worse(slowest, link_between(cluster, grid.launched(replica, source), grid.launched(replica, destination)));
  }
  return slowest;
}

LinkCost replica_link(const Cluster& cluster, const Grid& grid, int rank) {
  LinkCost slowest;
  for (int replica = 0; replica < grid.replicas && grid.replicas > 1; ++replica) {
    const int next = (replica + 1) % grid.replicas;
    const LinkCost& link = link_between(cluster, grid.launched(replica, rank), grid.launched(next, rank));
    slowest = replica == 0 ? link : worse(slowest, link);
  }
  return slowest;
}

void set_links(Costs& costs, const Cluster& cluster, const Grid& grid) {
  costs.latency = {0.0};
  costs.bandwidth.clear();
  if (grid.ranks < 2) return;
  // Between two ranks there is but one link; beyond that, one leads from the last back to rank 0.
  const int links = grid.ranks == 2 ? 1 : grid.ranks;
  costs.latency.clear();
  bool finite = false;
  for (int r = 0; r < links; ++r) {
    const LinkCost link = pipeline_link(cluster, grid, r, (r + 1) % grid.ranks);
    costs.latency.push_back(link.latency);
    costs.bandwidth.push_back(link.bandwidth);
    finite = finite || link.bandwidth > 0;
  }
  if (!finite) costs.bandwidth.clear();
}

double ring_bytes(double bytes, int replicas) { return bytes * (replicas - 1) / replicas; }

double ring_ms(double bytes, int replicas, const LinkCost& link) {
  const double sent = link.bandwidth > 0 ? ring_bytes(bytes, replicas) / (link.bandwidth * kBytesPerMillisecond) : 0.0;
  return (replicas - 1) * link.latency + sent;
}

}  // namespace train_gpt
