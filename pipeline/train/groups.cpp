#include "pipeline/train/groups.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "pipeline/schedule/schedule.h"

namespace train_gpt {

Layout make_layout(int ranks, int data_parallel) {
  if (ranks % data_parallel != 0) {
    throw std::invalid_argument("--data-parallel " + std::to_string(data_parallel) + " does not divide the " +
                                (ranks == 1 ? "one rank" : std::to_string(ranks) + " ranks") +
                                " of this job: start a multiple of it with mpirun -n");
  }
  return {.data = data_parallel, .pipeline = ranks / data_parallel};
}

bool Groups::owns_parameters() const { return replica() == 0 && is_first_of_mirrored(); }

Communicator* Groups::tied_to(int peer) const {
  for (const TiedPair& group : tied) {
    if (group.peer == peer) return group.pair.get();
  }
  throw std::logic_error("no communicator with rank " + std::to_string(peer));
}

void Groups::progress() {
  for_each([](Communicator& group) { group.progress(); });
}

Groups make_groups(Communicator& world, const Layout& layout, const Plan& plan) {
  Groups groups;
  groups.layout = layout;
  groups.world = &world;
  const int replica = world.rank() / layout.pipeline;
  const int rank = world.rank() % layout.pipeline;
  groups.pipeline = world.split(replica, rank);
  if (layout.data > 1) groups.replicas = world.split(rank, replica);
  if (plan.request.schedule.placement.kind == Placement::Kind::bidirectional) {
    groups.mirrors = groups.pipeline->split(std::min(rank, layout.pipeline - 1 - rank), rank);
  }
  for (std::size_t i = 0; i < plan.tied_sums.size(); ++i) {
    const TiedSum& sum = plan.tied_sums[i];
    if (i > 0 && plan.tied_sums[i - 1].embedding == sum.embedding && plan.tied_sums[i - 1].head == sum.head) continue;
    auto pair = groups.pipeline->split(sum.takes_part(rank) ? 1 : 0, rank);
    if (sum.takes_part(rank)) {
      groups.tied.push_back({rank == sum.embedding ? sum.head : sum.embedding, std::move(pair)});
    }
  }
  for (Communicator* group : {groups.mirrors.get(), groups.replicas.get()}) {
    if (group != nullptr) groups.summing.push_back(group);
  }
  for (const Groups::TiedPair& group : groups.tied) groups.summing.push_back(group.pair.get());
  return groups;
}

}  // namespace train_gpt
