#include "pipeline/plan/replica_collectives.h"

#include <algorithm>

namespace train_gpt {
namespace {

constexpr double kFloat = sizeof(float);

// Parameters that are whole in windows only travel as actions read them, others as the optimizer keeps them.
double gathered_element(const Plan& plan, const RankPlan& rank) {
  return rank.parameter_windows ? static_cast<double>(element_size(plan.request.precision)) : kFloat;
}

}  // namespace

std::optional<Collective> collective_of(const Plan& plan, int rank, const LoweredAction& action, const LinkCost& link) {
  using Kind = LoweredAction::Kind;
  const RankPlan& of_rank = plan.ranks[static_cast<std::size_t>(rank)];
  const bool reduces = action.kind == Kind::reduce_replicas;
  if (!reduces && action.kind != Kind::gather) return std::nullopt;
  const int d = plan.request.batch.replicas;
  const Section& section = of_rank.sections[static_cast<std::size_t>(action.section)];
  const double bytes = static_cast<double>(section.elements) * (reduces ? kFloat : gathered_element(plan, of_rank));
  const int ways = reduces && plan.request.zero == 0 ? 2 : 1;  // an all-reduce is a reduce-scatter and an all-gather
  const bool behind_update = !reduces && action.after >= of_rank.actions.size();
  return Collective{.kind = reduces ? Collective::Kind::reduce : Collective::Kind::gather,
                    .stage = section.stage,
                    .after = behind_update ? 0 : action.after,
                    .before = action.before,
                    .ms = ways * ring_ms(bytes, d, link),
                    .bytes = ways * ring_bytes(bytes, d)};
}

Collectives replica_collectives(const Plan& plan, const std::vector<LinkCost>& links) {
  Collectives all(plan.ranks.size());
  if (plan.request.batch.replicas == 1) return all;
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (const LoweredAction& action : lower(plan, static_cast<int>(r))) {
      const auto one = collective_of(plan, static_cast<int>(r), action, links[r]);
      if (one) all[r].push_back(*one);
    }
    std::ranges::stable_sort(all[r], {}, &Collective::after);
  }
  return all;
}

}  // namespace train_gpt
