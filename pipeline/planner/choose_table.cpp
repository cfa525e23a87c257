// A table of the choice.
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "pipeline/plan/plan_bytes.h"
#include "pipeline/planner/choose.h"

namespace train_gpt {
namespace {

std::string units_of(const RankPlan& rank) {
  std::string text;
  for (const StagePlan& stage : rank.stages) {
    text += (text.empty() ? "" : " + ") + std::to_string(stage.shape.first_unit) + ".." +
            std::to_string(stage.shape.last_unit - 1);
  }
  return text;
}

// Milliseconds of F, I and W of a step on each rank.
struct RankWork {
  double forward = 0, input = 0, weight = 0;
  double total() const { return forward + input + weight; }
};

std::vector<RankWork> work_per_micro_batch(const Choice& choice) {
  const Placement& placement = choice.plan.request.schedule.placement;
  const double m = choice.plan.request.schedule.micro_batches;
  std::vector<RankWork> work(static_cast<std::size_t>(placement.ranks));
  for (std::size_t s = 0; s < placement.stages.size(); ++s) {
    const Placement::VirtualStage& stage = placement.stages[s];
    const double share = (stage.last_micro_batch - stage.first_micro_batch) / m;
    RankWork& rank = work[static_cast<std::size_t>(stage.rank)];
    rank.forward += share * choice.costs.forward[s];
    rank.input += share * choice.costs.input[s];
    rank.weight += share * choice.costs.weight[s];
  }
  return work;
}

int recomputed_units(const Plan& plan, const RankPlan& rank) {
  int count = 0;
  if (plan.request.recompute.empty()) return 0;
  for (const StagePlan& stage : rank.stages) {
    count += static_cast<int>(std::count(stage.shape.recompute.begin(), stage.shape.recompute.end(), true));
  }
  return count;
}

std::string cut_text(const Partition& partition) {
  std::string text;
  for (const int units : partition) text += (text.empty() ? "" : ",") + std::to_string(units);
  return text;
}

}  // namespace

std::string partition_table(const Choice& choice, const CostModel& costs) {
  const Plan& plan = choice.plan;
  const std::vector<RankWork> work = work_per_micro_batch(choice);
  const double total =
      std::accumulate(work.begin(), work.end(), 0.0, [](double sum, const RankWork& r) { return sum + r.total(); });
  std::string table =
      "partition " + cut_text(plan.request.partition) + ", costs " + costs.source + ", head " + head_text(plan) + ":\n";
  char text[240];
  std::snprintf(text, sizeof text, "%-6s %-24s %9s %9s %9s %9s %7s %11s %10s\n", "rank", "units", "F ms", "I ms",
                "W ms", "sum ms", "share", "recomputed", "bytes");
  table += text;
  for (const RankPlan& rank : plan.ranks) {
    const RankWork& of_rank = work[static_cast<std::size_t>(rank.rank)];
    std::snprintf(text, sizeof text, "%-6d %-24s %9.2f %9.2f %9.2f %9.2f %6.1f%% %11d %10s\n", rank.rank,
                  units_of(rank).c_str(), of_rank.forward, of_rank.input, of_rank.weight, of_rank.total(),
                  total > 0 ? 100 * of_rank.total() / total : 0.0, recomputed_units(plan, rank),
                  format_bytes(rank.total_bytes()).c_str());
    table += text;
  }
  table.pop_back();
  return table;
}

std::string beside_uniform_cut(double makespan, std::optional<double> uniform_makespan) {
  if (!uniform_makespan || makespan <= 0) return "";
  char text[100];
  std::snprintf(text, sizeof text, "; a uniform cut: %.1f ms, which is %.1f%% more", *uniform_makespan,
                100 * (*uniform_makespan / makespan - 1));
  return text;
}

}  // namespace train_gpt
