#include "commands/run/checkpoint_copies.h"

#include <algorithm>

#include "pipeline/plan/plan_bytes.h"

namespace train_gpt {

namespace {

// The most that a rank's copy takes.
std::int64_t largest_copy(const Plan& plan) {
  std::int64_t most = 0;
  for (const RankPlan& rank : plan.ranks) most = std::max(most, copy_bytes_of(plan.request, rank, /*replica=*/0));
  return most;
}

}  // namespace

void add_copies(Plan& plan) {
  for (RankPlan& rank : plan.ranks) rank.copy_bytes = copy_bytes_of(plan.request, rank, /*replica=*/0);
}

bool copies_fit(const Plan& plan, std::int64_t limit) {
  if (plan.request.flushless()) return false;
  return limit == 0 || std::all_of(plan.ranks.begin(), plan.ranks.end(), [&](const RankPlan& rank) {
           return rank.total_bytes() + copy_bytes_of(plan.request, rank, 0) <= limit;
         });
}

std::string without_copies(const Plan& plan) {
  if (plan.request.flushless()) {
    return "training waits while checkpoints are written: without a flush they hold several sets of parameters";
  }
  return "training waits while checkpoints are written: a copy of parameters and moments beside the plan, from "
         "which they could be written meanwhile, would take up to " +
         format_bytes(largest_copy(plan)) + " of a rank, more than there is";
}

}  // namespace train_gpt
