#include "pipeline/plan/lowering.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace train_gpt {
namespace {

bool adds_weight_gradients(Op op) { return op == Op::backward || op == Op::backward_weight; }

// Actions of the list after which all gradients of wte that live here, the embedding's and the head's, are complete.
std::size_t wte_complete(const Plan& plan, const RankPlan& rank) {
  const std::vector<Action>& list = plan.step_schedule().actions(rank.rank);
  std::size_t complete = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const StageShape& shape = rank.stage_plan(list[i].stage).shape;
    const bool in_forward = shape.streams_head() && list[i].op == Op::forward;
    const bool in_weight =
        adds_weight_gradients(list[i].op) && (shape.has_embedding() || (shape.has_shards() && !shape.streams_head()));
    if (in_forward || in_weight) complete = i + 1;
  }
  return complete;
}

// A section and how many actions of the list are done when its gradients are complete.
struct Complete {
  int section = 0;
  std::size_t after = 0;
};

// The sections of a rank in the order in which they are complete.
std::vector<Complete> in_order_of_completion(const Plan& plan, const RankPlan& rank) {
  const std::vector<Action>& list = plan.step_schedule().actions(rank.rank);
  std::vector<Complete> order;
  for (std::size_t i = 0; i < rank.sections.size(); ++i) {
    order.push_back({static_cast<int>(i), stage_complete(list, rank.sections[i].stage)});
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.after < b.after; });
  return order;
}

// The section of `rank` that holds the same tensors as a section of its mirrored rank.
int same_section(const Plan& plan, const RankPlan& rank, const Section& mirrored) {
  const auto model_stage = [&](const Section& section) {
    return plan.request.schedule.placement.stages[static_cast<std::size_t>(section.stage)].model_stage;
  };
  const auto found = std::ranges::find_if(rank.sections, [&](const Section& section) {
    return section.kind == mirrored.kind && section.first_shard == mirrored.first_shard &&
           model_stage(section) == model_stage(mirrored);
  });
  if (found == rank.sections.end()) throw std::logic_error("mirrored ranks hold different sections");
  return static_cast<int>(found - rank.sections.begin());
}

// The order in which a rank reduces its sections. Mirrored ranks, which reduce together, both take that of the first of
// them, whatever their lists: each reduction waits for those before it.
std::vector<Complete> order_of_reductions(const Plan& plan, const RankPlan& rank) {
  if (plan.request.directions() == 1) return in_order_of_completion(plan, rank);
  const int first = std::min(rank.rank, plan.request.schedule.ranks - 1 - rank.rank);
  const RankPlan& leading = plan.ranks[static_cast<std::size_t>(first)];
  std::vector<Complete> order = in_order_of_completion(plan, leading);
  std::size_t after = 0;
  for (Complete& one : order) {
    const Section& section = leading.sections[static_cast<std::size_t>(one.section)];
    one.section = same_section(plan, rank, section);
    const int stage = rank.sections[static_cast<std::size_t>(one.section)].stage;
    after = std::max(after, stage_complete(plan.step_schedule().actions(rank.rank), stage));
    one.after = after;
  }
  return order;
}

// Gathers of parameters that stay whole between two updates, in the order in which the next list needs them.
std::vector<LoweredAction> gathers_of_all(const Plan& plan, const RankPlan& rank) {
  const std::vector<Action>& list = plan.step_schedule().actions(rank.rank);
  std::vector<LoweredAction> gathers;
  for (std::size_t i = 0; i < rank.sections.size(); ++i) {
    const Section& section = rank.sections[i];
    if (!section.has_parameters) continue;
    const auto needed = std::ranges::find_if(list, [&](const Action& action) {
      const bool reads_shared_wte =
          section.kind == Section::Kind::embedding && rank.stage_plan(action.stage).shape.has_shards();
      return action.stage == section.stage || reads_shared_wte;
    });
    gathers.push_back({.kind = LoweredAction::Kind::gather,
                       .after = list.size(),
                       .before = static_cast<std::size_t>(needed - list.begin()),
                       .section = static_cast<int>(i)});
  }
  std::ranges::stable_sort(gathers, {}, &LoweredAction::before);
  return gathers;
}

// Behind the update: all parameters, or those that the next list's first actions need. None where nothing is sharded.
std::vector<LoweredAction> gathers_behind_update(const Plan& plan, const RankPlan& rank) {
  if (plan.request.zero == 0 || plan.request.batch.replicas == 1) return {};
  if (!rank.parameter_windows) return gathers_of_all(plan, rank);
  std::vector<LoweredAction> gathers;
  for (const Gathering& one : rank.parameter_windows->training) {
    if (one.after > 0) continue;
    gathers.push_back({.kind = LoweredAction::Kind::gather,
                       .after = rank.actions.size(),
                       .before = one.before,
                       .section = one.section});
  }
  return gathers;
}

// Gathers and releases of parameters within the list: at one place, releases come before gathers.
std::vector<LoweredAction> gathers_in_list(const RankPlan& rank) {
  std::vector<LoweredAction> all;
  if (!rank.parameter_windows) return all;
  for (const Gathering& one : rank.parameter_windows->training) {
    all.push_back({.kind = LoweredAction::Kind::let_go, .after = one.until, .section = one.section});
  }
  for (const Gathering& one : rank.parameter_windows->training) {
    if (one.after == 0) continue;
    all.push_back(
        {.kind = LoweredAction::Kind::gather, .after = one.after, .before = one.before, .section = one.section});
  }
  std::ranges::stable_sort(all, {}, &LoweredAction::after);
  return all;
}

// Adds `others`, which are in the order in which they are issued and before what is issued at the same place.
void merge(std::vector<LoweredAction>& lowered, std::vector<LoweredAction> others) {
  if (others.empty()) return;
  std::vector<LoweredAction> merged;
  std::vector<std::size_t> places;  // of lowered's in merged
  auto next = others.begin();
  for (LoweredAction& action : lowered) {
    for (; next != others.end() && next->after <= action.after; ++next) merged.push_back(std::move(*next));
    for (std::size_t& needed : action.needs) needed = places[needed];
    places.push_back(merged.size());
    merged.push_back(std::move(action));
  }
  std::move(next, others.end(), std::back_inserter(merged));
  lowered = std::move(merged);
}

// They take nothing but time: one reduction for each stage, or with links all that replicas exchange.
std::vector<LoweredAction> timed_actions(const Plan& plan, const RankPlan& rank) {
  const bool links = !plan.request.replica_links.empty();
  std::vector<LoweredAction> lowered;
  if (plan.request.batch.replicas == 1 || (plan.request.reduction_ms == 0 && !links)) return lowered;
  for (const Complete& one : in_order_of_completion(plan, rank)) {
    const auto index = static_cast<std::size_t>(one.section);
    if (!links && rank.sections[index].kind != Section::Kind::units) continue;
    lowered.push_back({.kind = LoweredAction::Kind::reduce_replicas, .after = one.after, .section = one.section});
    if (rank.gradient_windows) lowered.back().before = rank.gradient_windows->until[index];
  }
  if (!links) return lowered;
  merge(lowered, gathers_in_list(rank));
  lowered.push_back({.kind = LoweredAction::Kind::update, .after = rank.actions.size()});
  std::ranges::move(gathers_behind_update(plan, rank), std::back_inserter(lowered));
  return lowered;
}

}  // namespace

std::vector<LoweredAction> lower(const Plan& plan, int rank) {
  using Kind = LoweredAction::Kind;
  const RankPlan& rank_plan = plan.ranks[static_cast<std::size_t>(rank)];
  if (!plan.request.computes) return timed_actions(plan, rank_plan);
  const std::size_t end = rank_plan.actions.size();
  const bool copies = plan.request.directions() == 2;
  const bool replicas = plan.request.batch.replicas > 1;
  std::vector<LoweredAction> lowered;
  std::vector<std::size_t> sums_of_wte;  // the last reduction of each section that the tied sums add
  const auto reduce = [&](Kind kind, const Complete& section, std::vector<std::size_t> needs) {
    lowered.push_back({.kind = kind, .after = section.after, .section = section.section, .needs = std::move(needs)});
    const auto index = static_cast<std::size_t>(section.section);
    if (rank_plan.gradient_windows) lowered.back().before = rank_plan.gradient_windows->until[index];
    const bool last = kind == Kind::reduce_replicas || !replicas;
    const bool of_wte = rank_plan.sections[index].is_of_tied_wte();
    if (last && of_wte) sums_of_wte.push_back(lowered.size() - 1);
  };
  if (copies || replicas) {
    const std::vector<Complete> order = order_of_reductions(plan, rank_plan);
    for (const Complete& section : order) {
      reduce(copies ? Kind::reduce_mirrors : Kind::reduce_replicas, section, {});
    }
    // Replicas add the sums of the two directions. Behind the list, where waiting for those holds nobody up.
    for (std::size_t i = 0; copies && replicas && i < order.size(); ++i) {
      reduce(Kind::reduce_replicas, {order[i].section, end}, {i});
    }
  }
  // Sums over copies and replicas come first: they are partial sums of the same tensor.
  const std::size_t tied_after = copies || replicas ? end : wte_complete(plan, rank_plan);
  const auto reduce_tied = [&](int sum) {
    lowered.push_back({.kind = Kind::reduce_tied, .after = tied_after, .tied_sum = sum, .needs = sums_of_wte});
  };
  const std::vector<ArenaLayout::Entry>& entries = rank_plan.layout.entries;
  const bool shares =
      std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.head_gradient >= 0; });
  if (shares) reduce_tied(-1);
  for (std::size_t i = 0; i < plan.tied_sums.size(); ++i) {
    if (plan.tied_sums[i].takes_part(rank)) reduce_tied(static_cast<int>(i));
  }
  merge(lowered, gathers_in_list(rank_plan));
  lowered.push_back({.kind = Kind::update, .after = end});
  std::ranges::move(gathers_behind_update(plan, rank_plan), std::back_inserter(lowered));
  return lowered;
}

char letter(LoweredAction::Kind kind) {
  if (kind == LoweredAction::Kind::gather) return 'G';
  if (kind == LoweredAction::Kind::let_go) return 'L';
  return kind == LoweredAction::Kind::update ? 'U' : 'R';
}

}  // namespace train_gpt
