// Lowering: what a schedule's lists do not say because it follows from them. Once the last gradient of a tensor has
// been added, it is reduced (R): between mirrored parameter copies, between replicas, between the two ends of the tied
// embedding; then the parameters are updated (U). Lowered actions are data like the others and appear in every
// timeline.
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

struct LoweredAction {
  enum class Kind : std::uint8_t {
    reduce_copies,    // all gradients, between ranks r and p-1-r of a bidirectional schedule
    reduce_replicas,  // all gradients, between data-parallel replicas
    reduce_tied,      // shards of wte, between embedding and head
    update,           // norm, clipping, AdamW
  };
  Kind kind = Kind::update;
  std::size_t after = 0;  // issued as soon as this many actions of the rank's list are done
  int tied_sum = -1;      // of reduce_tied: index into Plan::tied_sums; -1: the ends that share this rank
};

// In the order in which the rank issues them; none where nothing is computed.
std::vector<LoweredAction> lower(const Plan& plan, int rank);

char letter(LoweredAction::Kind kind);  // R or U

}  // namespace train_gpt
