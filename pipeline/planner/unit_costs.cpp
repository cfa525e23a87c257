#include "pipeline/planner/unit_costs.h"

#include <algorithm>
#include <numeric>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {
namespace {

// Shards after the first differ by a block of 128 columns at most: all are scaled from the measured one.
UnitForm form_of(const ModelConfig& model, int unit) {
  switch (unit_kind(model, unit)) {
    case UnitKind::embedding:
      return UnitForm::embedding;
    case UnitKind::attention:
      return UnitForm::attention;
    case UnitKind::mlp:
      return UnitForm::mlp;
    case UnitKind::head:
      break;
  }
  return unit_shard(model, unit) == 0 ? UnitForm::head_first : UnitForm::head_shard;
}

double width_factor(const ModelConfig& model, int unit) {
  const int shard = unit_shard(model, unit);
  if (shard <= 0) return 1;
  return static_cast<double>(vocabulary_shard(model, shard).width) /
         static_cast<double>(vocabulary_shard(model, measured_shard(model)).width);
}

PassCosts mean_of(const Profile& profile, UnitForm form) {
  PassCosts mean;
  const auto ranks = static_cast<double>(profile.ranks.size());
  for (const RankProfile& rank : profile.ranks) {
    const UnitTimes& times = rank[static_cast<std::size_t>(form)];
    mean.forward += times.forward.median / ranks;
    mean.input += times.input.median / ranks;
    mean.weight += times.weight.median / ranks;
  }
  return mean;
}

double total(const UnitTimes& times) { return times.forward.median + times.input.median + times.weight.median; }

}  // namespace

UnitCosts unit_costs(const Profile& profile, const ModelConfig& model) {
  UnitCosts costs;
  for (int u = 0; u < unit_count(model); ++u) {
    const PassCosts mean = mean_of(profile, form_of(model, u));
    const double factor = width_factor(model, u);
    costs.forward.push_back(factor * mean.forward);
    costs.input.push_back(mean.input);
    costs.weight.push_back(factor * mean.weight);
  }
  costs.streamed_head = mean_of(profile, UnitForm::head_streamed);
  costs.first_head = first_head_unit(model);
  return costs;
}

std::vector<double> rank_slowness(const Profile& profile, int p, double tolerance) {
  std::vector<double> slowness(static_cast<std::size_t>(p), 1.0);
  if (profile.ranks.size() != slowness.size()) return slowness;
  for (std::size_t r = 0; r < slowness.size(); ++r) {
    slowness[r] = total(profile.ranks[r][static_cast<std::size_t>(UnitForm::attention)]) +
                  total(profile.ranks[r][static_cast<std::size_t>(UnitForm::mlp)]);
  }
  const auto [fastest, slowest] = std::minmax_element(slowness.begin(), slowness.end());
  const bool equal = *fastest <= 0 || *slowest <= (1 + tolerance) * *fastest;
  const double mean = std::accumulate(slowness.begin(), slowness.end(), 0.0) / static_cast<double>(p);
  for (double& factor : slowness) factor = equal ? 1.0 : factor / mean;
  return slowness;
}

double third_of_flops_per_token(const ModelConfig& model, std::int64_t seq_len, int unit) {
  const auto C = static_cast<double>(model.hidden);
  switch (unit_kind(model, unit)) {
    case UnitKind::embedding:
      return C;
    case UnitKind::attention:  // qkv and projection; scores and values, half of them hidden by the causal mask
      return 8 * C * C + 2 * static_cast<double>(seq_len) * C;
    case UnitKind::mlp:
      return 16 * C * C;
    case UnitKind::head:
      break;
  }
  return 2 * C * static_cast<double>(vocabulary_shard(model, unit_shard(model, unit)).width);
}

UnitCosts estimated_unit_costs(const ModelConfig& model, std::int64_t seq_len, int p) {
  UnitCosts costs;
  costs.first_head = first_head_unit(model);
  double sum = 0;
  for (int u = 0; u < unit_count(model); ++u) sum += third_of_flops_per_token(model, seq_len, u);
  const double ms_per_flop = static_cast<double>(p) / sum;
  for (int u = 0; u < unit_count(model); ++u) {
    const double third = ms_per_flop * third_of_flops_per_token(model, seq_len, u);
    const bool head = u >= costs.first_head;
    costs.forward.push_back(head ? 2 * third : third);
    costs.input.push_back(head || u == 0 ? 0 : third);
    costs.weight.push_back(third);
    if (head) costs.streamed_head.forward += 3 * third;
  }
  return costs;
}

namespace {

PassCosts costs_of_units(const UnitCosts& units, UnitRange range, bool streams, const std::vector<bool>& recompute) {
  PassCosts costs = streams ? units.streamed_head : PassCosts{};
  const int last = streams ? std::min(range.last, units.first_head) : range.last;
  for (int unit = range.first; unit < last; ++unit) {
    const auto u = static_cast<std::size_t>(unit);
    const bool again = !recompute.empty() && recompute[u];
    const bool shard = unit >= units.first_head;
    costs.forward += units.forward[u];
    costs.input += units.input[u] + (again && !shard ? units.forward[u] : 0);
    costs.weight += units.weight[u] + (again && shard ? units.forward[u] / 2 : 0);
  }
  return costs;
}

}  // namespace

StageCosts stage_costs(const UnitCosts& units, HeadForm head, const Placement& placement, const Partition& partition,
                       const std::vector<double>& slowness, const std::vector<bool>& recompute) {
  StageCosts costs;
  const std::vector<UnitRange> ranges = unit_ranges(placement, partition);
  const int count = static_cast<int>(units.forward.size());
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const bool whole = ranges[s].first <= units.first_head && ranges[s].last == count;
    const PassCosts sum = costs_of_units(units, ranges[s], whole && head == HeadForm::streamed, recompute);
    const double factor = slowness.empty() ? 1.0 : slowness[static_cast<std::size_t>(placement.stages[s].rank)];
    costs.forward.push_back(factor * sum.forward);
    costs.input.push_back(factor * sum.input);
    costs.weight.push_back(factor * sum.weight);
  }
  return costs;
}

}  // namespace train_gpt
