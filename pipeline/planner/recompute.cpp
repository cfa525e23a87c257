#include "pipeline/planner/recompute.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "pipeline/planner/live_micro_batches.h"

namespace train_gpt {
namespace {

// A unit of the stage that holds the units `range`.
bool can_recompute(const ModelConfig& model, int unit, UnitRange range, HeadForm head) {
  const int first_head = first_head_unit(model);
  if (unit < first_head) return unit > 0;
  const bool whole = range.first <= first_head && range.last == unit_count(model);
  return !(whole && head == HeadForm::streamed);
}

std::string join(const std::vector<int>& numbers) {
  std::string text;
  for (const int n : numbers) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

void check_list(const std::vector<int>& counts, const Partition& partition) {
  if (counts.size() == partition.size()) return;
  throw std::invalid_argument("--recompute " + join(counts) + ": must be " + std::to_string(partition.size()) +
                              " numbers, one per virtual stage");
}

// Activation bytes of one live micro-batch that recomputing a unit saves.
std::int64_t saved_bytes(const PlanRequest& request, int unit) {
  const auto kept_with = [&](bool recompute) {
    const StageBytes bytes = stage_bytes(unit_shape(request, unit, recompute), request.precision);
    return bytes.forward_to_input + bytes.forward_to_weight;
  };
  return kept_with(false) - kept_with(true);
}

// The units of every rank that may be recomputed, those that save most first.
std::vector<std::vector<int>> candidates(const PlanRequest& request) {
  const Placement& placement = request.schedule.placement;
  const std::vector<UnitRange> ranges = unit_ranges(placement, request.partition);
  const std::vector<int> live = live_micro_batches(request.schedule).forward_to_weight;
  std::vector<std::int64_t> saved(static_cast<std::size_t>(unit_count(request.model)), 0);
  std::vector<std::vector<int>> units(static_cast<std::size_t>(placement.ranks));
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    for (int u = ranges[s].first; u < ranges[s].last; ++u) {
      if (!can_recompute(request.model, u, ranges[s], request.head)) continue;
      saved[static_cast<std::size_t>(u)] =
          saved_bytes(request, u) * live[static_cast<std::size_t>(placement.stages[s].model_stage)];
      units[static_cast<std::size_t>(placement.stages[s].rank)].push_back(u);
    }
  }
  for (std::vector<int>& of_rank : units) {
    std::sort(of_rank.begin(), of_rank.end());
    std::stable_sort(of_rank.begin(), of_rank.end(), [&](int a, int b) {
      return saved[static_cast<std::size_t>(a)] > saved[static_cast<std::size_t>(b)];
    });
  }
  return units;
}

}  // namespace

StageShape unit_shape(const PlanRequest& request, int unit, bool recompute) {
  StageShape shape;
  shape.model = request.model;
  shape.first_unit = unit;
  shape.last_unit = unit + 1;
  shape.B = request.batch.rows;
  shape.T = request.batch.seq_len;
  shape.head = request.head;
  shape.chunks = request.head_chunks;
  shape.recompute = {recompute};
  return shape;
}

std::vector<bool> recompute_list(const std::vector<int>& counts, const ModelConfig& model, const Partition& partition,
                                 HeadForm head) {
  check_list(counts, partition);
  std::vector<bool> recompute(static_cast<std::size_t>(unit_count(model)), false);
  int unit = 0;
  for (std::size_t s = 0; s < partition.size(); ++s) {
    int left = counts[s];
    const UnitRange range = {unit, unit + partition[s]};
    for (; unit < range.last; ++unit) {
      if (left == 0 || !can_recompute(model, unit, range, head)) continue;
      recompute[static_cast<std::size_t>(unit)] = true;
      --left;
    }
    if (left == 0) continue;
    throw std::invalid_argument("--recompute " + join(counts) + ": stage " + std::to_string(s) + " has only " +
                                std::to_string(counts[s] - left) +
                                " units that can be recomputed (attention, MLP, and shards of a head that is not "
                                "streamed) under the partition " +
                                join(partition));
  }
  return recompute;
}

int missing_units(const std::vector<int>& counts, const ModelConfig& model, const Partition& partition, HeadForm head) {
  check_list(counts, partition);
  int missing = 0;
  int unit = 0;
  for (std::size_t s = 0; s < partition.size(); ++s) {
    int there = 0;
    const UnitRange range = {unit, unit + partition[s]};
    for (; unit < range.last; ++unit) there += can_recompute(model, unit, range, head) ? 1 : 0;
    missing += std::max(0, counts[s] - there);
  }
  return missing;
}

std::optional<std::vector<bool>> recompute_to_fit(PlanRequest request, const std::vector<std::int64_t>& limits) {
  const std::vector<std::vector<int>> units = candidates(request);
  const std::size_t ranks = units.size();
  std::vector<std::size_t> least(ranks, 0);  // this many are needed ..
  std::vector<std::size_t> most(ranks);      // .. and this many suffice, if anything does
  for (std::size_t r = 0; r < ranks; ++r) most[r] = units[r].size();
  const auto plan_with = [&](const std::vector<std::size_t>& counts) {
    request.recompute.assign(static_cast<std::size_t>(unit_count(request.model)), false);
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < counts[r]; ++i) request.recompute[static_cast<std::size_t>(units[r][i])] = true;
    }
    return make_plan(request);
  };
  const auto fits = [&](const Plan& plan, std::size_t r) { return plan.ranks[r].total_bytes() <= limits[r]; };
  const Plan all = plan_with(most);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (!fits(all, r)) return std::nullopt;
  }
  std::vector<std::size_t> counts(ranks, 0);  // nothing is recomputed in the first try
  while (least != most) {
    const Plan plan = plan_with(counts);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (fits(plan, r))
        most[r] = std::min(most[r], counts[r]);
      else
        least[r] = std::min(most[r], counts[r] + 1);
      counts[r] = (least[r] + most[r]) / 2;
    }
  }
  plan_with(most);
  return request.recompute;
}

}  // namespace train_gpt
