#include "pipeline/planner/spread_cuts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

namespace train_gpt {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

class Spread {
 public:
  explicit Spread(const SpreadProblem& problem)
      : problem_(problem), placement_(problem.cut.placement), work_(index(placement_.ranks)), wait_(work_.size()) {
    const std::vector<double>& slowness = problem.cut.slowness;
    for (const double factor : slowness) slowness_.push_back(factor);
    slowness_.resize(work_.size(), 1.0);
    sums_.push_back(0);
    forward_sums_.push_back(0);
    for (std::size_t u = 0; u < problem.cut.unit_ms.size(); ++u) {
      sums_.push_back(sums_.back() + problem.cut.unit_ms[u]);
      forward_sums_.push_back(forward_sums_.back() + problem.forward_ms[u]);
    }
    double speed = 0;
    for (const double factor : slowness_) speed += 1 / factor;
    even_ = std::max(sums_.back() / speed * problem.micro_batches, 1e-300);
    for (const Placement::VirtualStage& stage : placement_.stages) rank_of_.push_back(index(stage.rank));
  }

  // Largest of all ranks, milliseconds; afterwards work_ and wait_ are those of the partition.
  double longest(const Partition& partition) {
    look_at(partition);
    double longest = 0;
    for (std::size_t r = 0; r < work_.size(); ++r) longest = std::max(longest, work_[r] + wait_[r]);
    return longest;
  }

  // Nearly the same, but ranks that are not the slowest count, too: moves that help only one of several show.
  double cost(const Partition& partition) {
    look_at(partition);
    double sum = 0;
    for (std::size_t r = 0; r < work_.size(); ++r) {
      double power = (work_[r] + wait_[r]) / even_;
      for (int i = 0; i < 7; ++i) power *= power;  // ^128
      sum += power;
    }
    return sum;
  }

  void descend(Partition& partition) {
    const std::size_t depth = partition.size();
    double now = cost(partition);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t from = 0; from < depth; ++from) {
        for (std::size_t to = 0; to < depth && partition[from] > 1; ++to) {
          if (to == from) continue;
          --partition[from], ++partition[to];
          const double trial = cost(partition);
          if (trial < now * (1 - 1e-9)) {
            now = trial;
            moved = true;
          } else {
            ++partition[from], --partition[to];
          }
        }
      }
    }
  }

 private:
  void look_at(const Partition& partition) {
    std::fill(work_.begin(), work_.end(), 0.0);
    std::size_t unit = 0;
    double waited = 0;
    const auto ranks = work_.size();
    for (std::size_t s = 0; s < partition.size(); ++s) {
      const std::size_t next = unit + index(partition[s]), r = rank_of_[s];
      work_[r] += problem_.micro_batches * slowness_[r] * (sums_[next] - sums_[unit]);
      if (s < ranks) {  // the first stages lie on different ranks, in their order
        wait_[r] = waited;
        waited += slowness_[r] * (forward_sums_[next] - forward_sums_[unit]);
      }
      unit = next;
    }
  }

  const SpreadProblem& problem_;
  const Placement& placement_;
  std::vector<double> slowness_;
  std::vector<double> sums_, forward_sums_;  // [unit]: of those before it
  std::vector<std::size_t> rank_of_;         // [stage]
  double even_ = 0;                          // milliseconds of a step whose ranks do all alike and never wait
  std::vector<double> work_, wait_;          // [rank], milliseconds of a step
};

// `units` over `stages`, the smaller stages first, last, or in between each other.
enum class Smaller : std::uint8_t { first, last, between };
void append(Partition& partition, int units, int stages, Smaller smaller) {
  const int least = units / stages, larger = units % stages;
  for (int s = 0; s < stages; ++s) {
    const bool large = smaller == Smaller::first  ? s >= stages - larger
                       : smaller == Smaller::last ? s < larger
                                                  : (s + 1) * larger / stages > s * larger / stages;
    partition.push_back(least + (large ? 1 : 0));
  }
}

// How many stages shards may have to themselves.
std::vector<int> shard_stages(int depth, int ranks, int layers, int shards) {
  std::set<int> counts;
  for (int halves = 0; halves * ranks / 2 < depth; ++halves) counts.insert(halves * ranks / 2);
  counts.insert(1);
  counts.insert(shards);
  std::vector<int> possible;
  for (const int count : counts)
    if (count <= shards && count < depth && depth - count <= layers) possible.push_back(count);
  return possible;
}

}  // namespace

std::vector<Partition> spread_cuts(const SpreadProblem& problem, std::size_t most) {
  const Placement& placement = problem.cut.placement;
  const int units = static_cast<int>(problem.cut.unit_ms.size()), depth = placement.depth();
  if (placement.kind == Placement::Kind::bidirectional || placement.kind == Placement::Kind::table) return {};
  Spread spread(problem);
  std::vector<std::pair<double, Partition>> found;
  for (const int alone : shard_stages(depth, placement.ranks, problem.first_head, units - problem.first_head))
    for (const Smaller smaller : {Smaller::first, Smaller::between, Smaller::last}) {
      Partition partition;
      const int layers = alone > 0 ? problem.first_head : units;
      append(partition, layers, depth - alone, smaller);
      if (alone > 0) append(partition, units - layers, alone, Smaller::last);
      spread.descend(partition);
      const double longest = spread.longest(partition);
      const auto same = [&](const auto& other) { return std::abs(other.first - longest) < 1e-9 * longest; };
      if (std::none_of(found.begin(), found.end(), same)) found.emplace_back(longest, std::move(partition));
    }
  std::sort(found.begin(), found.end());
  std::vector<Partition> best;
  for (auto& [longest, partition] : found)
    if (best.size() < most) best.push_back(std::move(partition));
  return best;
}

double least_step(const SpreadProblem& problem, const Partition& partition) {
  return Spread(problem).longest(partition);
}

}  // namespace train_gpt
