#include "pipeline/simulate/reductions.h"

#include <algorithm>
#include <map>
#include <vector>

namespace train_gpt {

double weight_share(const Action& action, const StageCosts& costs) {
  if (action.op == Op::backward_weight) return 1.0;
  if (action.op != Op::backward) return 0.0;
  const auto stage = static_cast<std::size_t>(action.stage);
  const double both = costs.input[stage] + costs.weight[stage];
  return both > 0.0 ? costs.weight[stage] / both : 0.0;
}

ReducedStep reduce(const Schedule& schedule, const StageCosts& costs, const Simulation& simulation, double ms,
                   ReducedAt at) {
  double first = simulation.first_start.front();
  for (const double start : simulation.first_start) first = std::min(first, start);
  double last = 0.0;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::map<int, Interval> last_weight;  // stage -> its last W
    for (std::size_t i = 0; i < schedule.lists[r].size(); ++i) {
      const Action& action = schedule.lists[r][i];
      const auto [start, end] = simulation.intervals[r][i];
      const bool adds = action.op == Op::backward || action.op == Op::backward_weight;
      if (adds) last_weight[action.stage] = {end - weight_share(action, costs) * (end - start), end};
    }
    std::vector<double> ends;  // of the W of every part
    const int parts = at == ReducedAt::part ? kReductionParts : 1;
    for (const auto& [stage, weight] : last_weight) {
      const double each = (weight.end - weight.start) / parts;
      for (int left = parts; left-- > 0;) {
        ends.push_back(at == ReducedAt::list ? simulation.last_end[r] : weight.end - left * each);
      }
    }
    std::ranges::sort(ends);
    double reduced = 0.0;
    for (const double end : ends) reduced = std::max(reduced, end) + ms / static_cast<double>(ends.size());
    last = std::max(last, reduced);
  }
  ReducedStep result;
  result.end = std::max(last - first, simulation.makespan);
  result.exposed = result.end - simulation.makespan;
  return result;
}

}  // namespace train_gpt
