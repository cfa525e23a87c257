#include "pipeline/planner/unit_costs.h"

#include <algorithm>
#include <numeric>

#include "pipeline/plan/execution_plan.h"

namespace train_gpt {
namespace {

UnitForm form_of(UnitKind kind, HeadForm head) {
  switch (kind) {
    case UnitKind::embedding:
      return UnitForm::embedding;
    case UnitKind::attention:
      return UnitForm::attention;
    case UnitKind::mlp:
      return UnitForm::mlp;
    case UnitKind::head:
      break;
  }
  return head == HeadForm::stored ? UnitForm::head_stored : UnitForm::head_streamed;
}

double total(const UnitTimes& times) { return times.forward.median + times.input.median + times.weight.median; }

}  // namespace

UnitCosts unit_costs(const Profile& profile, const ModelConfig& model, HeadForm head) {
  UnitCosts costs;
  const auto ranks = static_cast<double>(profile.ranks.size());
  for (int u = 0; u < unit_count(model); ++u) {
    const auto form = static_cast<std::size_t>(form_of(unit_kind(model, u), head));
    double forward = 0, input = 0, weight = 0;
    for (const RankProfile& rank : profile.ranks) {
      forward += rank[form].forward.median;
      input += rank[form].input.median;
      weight += rank[form].weight.median;
    }
    costs.forward.push_back(forward / ranks);
    costs.input.push_back(input / ranks);
    costs.weight.push_back(weight / ranks);
  }
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

double forward_flops_per_token(const ModelConfig& model, std::int64_t seq_len, int unit) {
  const auto C = static_cast<double>(model.hidden);
  switch (unit_kind(model, unit)) {
    case UnitKind::embedding:
      return C;
    case UnitKind::attention:  // qkv and projection; scores and values, half of them behind the causal mask
      return 8 * C * C + 2 * static_cast<double>(seq_len) * C;
    case UnitKind::mlp:
      return 16 * C * C;
    case UnitKind::head:
      break;
  }
  return 2 * C * static_cast<double>(model.padded_vocab());
}

UnitCosts estimated_unit_costs(const ModelConfig& model, std::int64_t seq_len, HeadForm head, int p) {
  UnitCosts costs;
  double sum = 0;
  for (int u = 0; u < unit_count(model); ++u) {
    const double flops = forward_flops_per_token(model, seq_len, u);
    sum += flops;
    costs.forward.push_back(flops);
    costs.input.push_back(unit_kind(model, u) == UnitKind::embedding ? 0 : flops);
    costs.weight.push_back(flops);
  }
  const double ms_per_flop = static_cast<double>(p) / sum;
  for (std::vector<double>* pass : {&costs.forward, &costs.input, &costs.weight}) {
    for (double& value : *pass) value *= ms_per_flop;
  }
  if (head == HeadForm::streamed) {
    costs.forward.back() *= 3;
    costs.input.back() = 0;
    costs.weight.back() = 0;
  }
  return costs;
}

StageCosts stage_costs(const UnitCosts& units, const Placement& placement, const Partition& partition,
                       const std::vector<double>& slowness, const std::vector<bool>& recompute) {
  StageCosts costs;
  const std::vector<UnitRange> ranges = unit_ranges(placement, partition);
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    double forward = 0, input = 0, weight = 0;
    for (int unit = ranges[s].first; unit < ranges[s].last; ++unit) {
      const auto u = static_cast<std::size_t>(unit);
      forward += units.forward[u];
      input += units.input[u] + (!recompute.empty() && recompute[u] ? units.forward[u] : 0);
      weight += units.weight[u];
    }
    const double factor = slowness.empty() ? 1.0 : slowness[static_cast<std::size_t>(placement.stages[s].rank)];
    costs.forward.push_back(factor * forward);
    costs.input.push_back(factor * input);
    costs.weight.push_back(factor * weight);
  }
  return costs;
}

}  // namespace train_gpt
