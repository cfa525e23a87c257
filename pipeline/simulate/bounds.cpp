// How fast the same actions on the same ranks could be at best, and the chain of actions that makes them slower.
#include <algorithm>
#include <limits>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/parts.h"

namespace train_gpt {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Shortest durations of each virtual stage, and what the lists hold.
struct StageMinima {
  explicit StageMinima(std::size_t stages)
      : forward(stages, kNever), gradient(stages, kNever), weight(stages, kNever), counts(stages) {}

  void add(const Action& action, double duration) {
    const bool forwards = action.op == Op::forward;
    std::vector<double>& shortest = forwards ? forward : action.op == Op::backward_weight ? weight : gradient;
    shortest[action.stage] = std::min(shortest[action.stage], duration);
    Counts& count = counts[action.stage];
    ++(forwards ? count.forward : action.op == Op::backward_weight ? count.weight : count.gradient);
    if (action.op == Op::backward) ++count.unsplit;
  }

  struct Counts {
    std::int64_t forward = 0, gradient = 0, weight = 0, unsplit = 0;
  };
  std::vector<double> forward, gradient, weight;  // gradient: I or B
  std::vector<Counts> counts;
};

bool complete(const StageMinima& minima, const std::vector<Placement::VirtualStage>& stages) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StageMinima::Counts& count = minima.counts[s];
    const std::int64_t wanted = stages[s].last_micro_batch - stages[s].first_micro_batch;
    if (count.forward != wanted || count.gradient != wanted || count.weight + count.unsplit != wanted) return false;
  }
  return true;
}

// Walks the stages of one parameter copy from the embedding to the head.
std::vector<int> chain_from(int first, const std::vector<Placement::VirtualStage>& stages) {
  std::vector<int> chain;
  for (int s = first; s >= 0; s = stages[s].next) chain.push_back(s);
  return chain;
}

// Per virtual stage, for any micro-batch of it.
struct StagePaths {
  std::vector<double> before;  // must pass before its first F can start
  std::vector<double> after;   // must follow the end of an I or B, on this rank (its W) or elsewhere
  double longest = 0.0;        // of a single micro-batch
};

StagePaths stage_paths(const Placement& placement, const StageCosts& costs, const StageMinima& minima) {
  const std::vector<Placement::VirtualStage>& stages = placement.stages;
  StagePaths paths{std::vector<double>(stages.size(), kNever), std::vector<double>(stages.size(), 0.0), 0.0};
  for (std::size_t first = 0; first < stages.size(); ++first) {
    if (stages[first].previous >= 0 || minima.counts[first].forward == 0) continue;
    const std::vector<int> chain = chain_from(static_cast<int>(first), stages);
    double time = 0.0;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      if (i > 0) time += costs.hop_after(Op::forward, chain[i - 1], placement).total();
      paths.before[chain[i]] = time;
      time += minima.forward[chain[i]];
    }
    double after = 0.0;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const int stage = chain[i];
      if (i > 0) after += costs.hop_after(Op::backward, stage, placement).total() + minima.gradient[chain[i - 1]];
      if (minima.counts[stage].unsplit == 0) after = std::max(after, minima.weight[stage]);
      paths.after[stage] = after;
    }
    const int head = chain.back();
    paths.longest = std::max(paths.longest, time + minima.gradient[head] + paths.after[head]);
  }
  return paths;
}

}  // namespace

double lower_bound(const Schedule& schedule, const StageCosts& costs, const DurationTable& durations,
                   const std::vector<RankWork>& more) {
  const std::vector<Placement::VirtualStage>& stages = schedule.placement.stages;
  StageMinima minima(stages.size());
  std::vector<double> busy(schedule.lists.size(), 0.0), critical_busy(busy.size(), 0.0);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    if (!more.empty()) busy[rank] = more[rank].busy, critical_busy[rank] = more[rank].critical;
    const std::vector<Action>& list = schedule.actions(rank);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const bool pair = durations.runs_as_pair(rank, i);
      const double duration = pair ? durations.pair(rank, i) : durations(rank, i);
      minima.add(list[i], duration);
      busy[rank] += duration;
      if (list[i].op != Op::backward_weight) critical_busy[rank] += duration;
      if (pair) minima.add(list[++i], duration);
    }
  }
  double bound = *std::max_element(busy.begin(), busy.end());
  if (!complete(minima, stages)) return bound;

  const StagePaths paths = stage_paths(schedule.placement, costs, minima);
  bound = std::max(bound, paths.longest);
  std::vector<double> before(busy.size(), kNever), after(busy.size(), kNever);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (minima.counts[s].forward == 0) continue;
    before[stages[s].rank] = std::min(before[stages[s].rank], paths.before[s]);
    after[stages[s].rank] = std::min(after[stages[s].rank], paths.after[s]);
  }
  for (std::size_t rank = 0; rank < busy.size(); ++rank) {
    if (before[rank] == kNever) continue;
    // The last action that is not a W is an I or B of some stage of the rank.
    bound = std::max({bound, before[rank] + busy[rank], before[rank] + critical_busy[rank] + after[rank]});
  }
  return bound;
}

}  // namespace train_gpt
