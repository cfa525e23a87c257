#include "pipeline/train/groups.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "pipeline/schedule/schedule.h"

namespace train_gpt {
namespace {

// Rank of copy 0 that holds this position of the model.
int rank_of_model_stage(const Placement& placement, int model_stage) {
  for (const Placement::VirtualStage& stage : placement.stages) {
    if (stage.copy == 0 && stage.model_stage == model_stage) return stage.rank;
  }
  throw std::logic_error("a placement without stage " + std::to_string(model_stage));
}

}  // namespace

Layout make_layout(int ranks, int data_parallel) {
  if (ranks % data_parallel != 0) {
    throw std::invalid_argument("--data-parallel " + std::to_string(data_parallel) + " does not divide the " +
                                std::to_string(ranks) + " ranks of this job: start a multiple of it with mpirun -n");
  }
  return {.data = data_parallel, .pipeline = ranks / data_parallel};
}

bool Groups::owns_parameters() const {
  const bool first_of_mirrored = copies == nullptr || copies->rank() == 0;
  return replica() == 0 && first_of_mirrored;
}

void Groups::progress() {
  for (Communicator* group : {world, pipeline.get(), replicas.get(), copies.get(), tied.get()}) {
    if (group != nullptr) group->progress();
  }
}

Groups make_groups(Communicator& world, const Layout& layout, const Schedule& schedule, const ModelConfig& model) {
  Groups groups;
  groups.layout = layout;
  groups.world = &world;
  const int replica = world.rank() / layout.pipeline;
  const int rank = world.rank() % layout.pipeline;
  groups.pipeline = world.split(replica, rank);
  if (layout.data > 1) groups.replicas = world.split(rank, replica);
  const Placement& placement = schedule.placement;
  if (placement.kind == Placement::Kind::bidirectional) {
    groups.copies = groups.pipeline->split(std::min(rank, layout.pipeline - 1 - rank), rank);
    return groups;  // both ends of the tied embedding live on ranks 0 and p-1, in one arena
  }
  const int embedding = rank_of_model_stage(placement, 0);
  const int head = rank_of_model_stage(placement, placement.depth() - 1);
  if (model.tied && embedding != head) {
    const bool holds_end = rank == embedding || rank == head;
    auto group = groups.pipeline->split(holds_end ? 1 : 0, rank);
    if (holds_end) groups.tied = std::move(group);
  }
  return groups;
}

}  // namespace train_gpt
