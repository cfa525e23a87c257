#include "pipeline/simulate/reductions.h"

#include <algorithm>
#include <map>
#include <vector>

namespace train_gpt {

ReducedStep reduce(const Schedule& schedule, const Simulation& simulation, double ms, ReducedAt at) {
  double first = simulation.first_start.front();
  for (const double start : simulation.first_start) first = std::min(first, start);
  double last = 0.0;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::map<int, double> complete;  // stage -> end of its last W
    for (std::size_t i = 0; i < schedule.lists[r].size(); ++i) {
      const Action& action = schedule.lists[r][i];
      const bool adds = action.op == Op::backward || action.op == Op::backward_weight;
      if (adds) complete[action.stage] = simulation.intervals[r][i].end;
    }
    std::vector<double> ends;
    for (const auto& [stage, end] : complete) ends.push_back(at == ReducedAt::stage ? end : simulation.last_end[r]);
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
