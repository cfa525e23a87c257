// Groups of ranks. They all come from one Layout; nothing else splits the ranks of a job.
#pragma once

#include <memory>

#include "kernels/communicator.h"
#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

// Rank w of the job is rank w mod `pipeline` of replica w / `pipeline`.
struct Layout {
  int data = 1;      // d, replicas
  int pipeline = 1;  // p
  int tensor = 1;    // ranks that share one stage; 1 is the only size that units support

  int ranks() const { return data * pipeline * tensor; }
};

// Throws std::invalid_argument naming --data-parallel unless the ranks of the job divide into d pipelines.
Layout make_layout(int ranks, int data_parallel);

struct Groups {
  Layout layout;
  Communicator* world = nullptr;           // not owned
  std::unique_ptr<Communicator> pipeline;  // the ranks of this replica
  std::unique_ptr<Communicator> replicas;  // this pipeline rank in all replicas; null if d = 1
  std::unique_ptr<Communicator> mirrors;  // bidirectional: ranks r and p-1-r, which hold the same parameters; else null
  // This rank's pairs with ranks that hold the other end of shards of a tied embedding, one for each such rank.
  struct TiedPair {
    int peer = 0;
    std::unique_ptr<Communicator> pair;
  };
  std::vector<TiedPair> tied;
  std::vector<Communicator*> summing;  // those of the above that sum gradients: mirrors, replicas, tied

  int rank() const { return pipeline->rank(); }
  int replica() const { return world->rank() / layout.pipeline; }
  // One rank per parameter contributes to norms, hashes and checkpoints: that of replica 0, and the first of two
  // mirrored ranks.
  bool owns_parameters() const;
  bool is_first_of_mirrored() const { return mirrors == nullptr || mirrors->rank() == 0; }
  Communicator* tied_to(int peer) const;
  // Calls visit(communicator) for each that is not null.
  template <class Visit>
  void for_each(const Visit& visit) {
    for (Communicator* group : {world, pipeline.get(), replicas.get(), mirrors.get()}) {
      if (group != nullptr) visit(*group);
    }
    for (const TiedPair& group : tied) visit(*group.pair);
  }
  // Moves the messages of every group.
  void progress();
};

// Collective over `world`.
Groups make_groups(Communicator& world, const Layout& layout, const Plan& plan);

}  // namespace train_gpt
