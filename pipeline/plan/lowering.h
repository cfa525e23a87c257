// Lowering adds what a schedule's lists do not say because it follows from them. Once the last gradient of a virtual
// stage has been added, its sections are reduced (R): between mirrored parameter copies, between replicas, between the
// two ends of the tied embedding; then the parameters are updated (U). A reduction runs beside the actions that follow
// it. Under --zero a replica updates its shard alone; the parameters of a section are gathered (G) after the update,
// beside the next step's first actions. Under --zero 3 this holds for the parameters of the first actions alone: others
// are gathered beside the actions before those that read them, and let go (L) after the last of these. Lowered actions
// are data like the others and appear in every timeline.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

struct LoweredAction {
  enum class Kind : std::uint8_t {
    reduce_mirrors,   // a section, between ranks r and p-1-r of a bidirectional schedule
    reduce_replicas,  // a section, between data-parallel replicas
    reduce_tied,      // shards of wte, between embedding and head
    update,           // norm, clipping, AdamW
    gather,           // the parameters of a section, from the replicas that updated them
    let_go,           // of a section's parameters: others may take their place
  };
  static constexpr std::size_t kAtTheEnd = std::numeric_limits<std::size_t>::max();
  Kind kind = Kind::update;
  std::size_t after = 0;                // issued as soon as this many actions of the rank's list are done
  std::size_t before = kAtTheEnd;       // complete before this action begins: of the next list, for gathers after the
                                        // update
  int section = -1;                     // of RankPlan::sections, for all but reduce_tied and update
  int tied_sum = -1;                    // of reduce_tied: index into Plan::tied_sums; -1: the ends that share this rank
  std::vector<std::size_t> needs = {};  // earlier ones in this list that must be complete before it is issued
};

// The lowered actions of a rank in the order in which it issues them; none where nothing is computed. The ranks of a
// group issue its reductions in the same order.
std::vector<LoweredAction> lower(const Plan& plan, int rank);

char letter(LoweredAction::Kind kind);  // R, U, G or L

}  // namespace train_gpt
