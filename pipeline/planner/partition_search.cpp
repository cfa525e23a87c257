#include "pipeline/planner/partition_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_set>
#include <utility>

#include "data/splitmix64.h"

namespace train_gpt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kNodes = 100'000;  // a tenth of a second
constexpr double kRounding = 1e-9;        // differences of sums in another order

struct Owner {
  int rank = 0;
  double weight = 1;  // share of the micro-batches
};

// [model stage]: the ranks that compute it, and their share of the micro-batches.
std::vector<std::vector<Owner>> owners_of(const Placement& placement) {
  std::vector<std::vector<Owner>> owners(static_cast<std::size_t>(placement.depth()));
  std::vector<double> micro_batches(owners.size(), 0.0);
  for (const Placement::VirtualStage& stage : placement.stages) {
    micro_batches[static_cast<std::size_t>(stage.model_stage)] += stage.last_micro_batch - stage.first_micro_batch;
  }
  for (const Placement::VirtualStage& stage : placement.stages) {
    const auto s = static_cast<std::size_t>(stage.model_stage);
    owners[s].push_back({stage.rank, (stage.last_micro_batch - stage.first_micro_batch) / micro_batches[s]});
  }
  return owners;
}

std::vector<int> ranks_of(const std::vector<Owner>& owners) {
  std::vector<int> ranks;
  for (const Owner& owner : owners) ranks.push_back(owner.rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

struct Step {
  int stage = 0;
  bool from_left = true;
};

// In model order, or alternately from both ends if mirrored stages belong to the same ranks.
std::vector<Step> steps_of(const std::vector<std::vector<Owner>>& owners) {
  const int depth = static_cast<int>(owners.size());
  bool nested = true;
  for (std::size_t s = 0; s < owners.size(); ++s) {
    nested = nested && ranks_of(owners[s]) == ranks_of(owners[owners.size() - 1 - s]);
  }
  std::vector<Step> steps;
  for (int i = 0; i < depth; ++i) {
    if (!nested)
      steps.push_back({i, true});
    else
      steps.push_back(i % 2 == 0 ? Step{i / 2, true} : Step{depth - 1 - i / 2, false});
  }
  return steps;
}

// Looks for a cut whose ranks all stay within a bound.
class CutSearch {
 public:
  explicit CutSearch(const CutProblem& problem)
      : problem_(problem), owners_(owners_of(problem.placement)), steps_(steps_of(owners_)) {
    const auto ranks = static_cast<std::size_t>(problem.placement.ranks);
    slowness_ = problem.slowness.empty() ? std::vector<double>(ranks, 1.0) : problem.slowness;
    total_ = std::accumulate(problem.unit_ms.begin(), problem.unit_ms.end(), 0.0);
    load_unit_ = std::max(total_, std::numeric_limits<double>::min()) * 1e-12;
    last_step_.assign(ranks, -1);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      for (const Owner& owner : owners(steps_[i]))
        last_step_[static_cast<std::size_t>(owner.rank)] = static_cast<int>(i);
    }
  }

  enum class Answer : std::uint8_t { yes, no, unknown };
  Answer within(double bound) {
    bound_ = bound * (1 + kRounding);
    failed_.clear();
    sizes_.assign(owners_.size(), 0);
    load_.assign(slowness_.size(), 0.0);
    bytes_.assign(slowness_.size(), 0.0);
    out_of_nodes_ = false;
    if (search(0, 0, static_cast<int>(problem_.unit_ms.size()), total_)) return Answer::yes;
    return out_of_nodes_ ? Answer::unknown : Answer::no;
  }
  const Partition& partition() const { return sizes_; }

  // No cut is faster than ideally divided work.
  double lower_bound() const {
    double speed = 0;
    for (const double slowness : slowness_) speed += 1 / slowness;
    return total_ / speed;
  }

 private:
  const std::vector<Owner>& owners(const Step& step) const { return owners_[static_cast<std::size_t>(step.stage)]; }

  bool search(std::size_t i, int left, int right, double rest_ms) {
    if (i == steps_.size()) return left == right;
    if (++nodes_ > kNodes) {
      out_of_nodes_ = true;
      return false;
    }
    if (rest_ms > capacity(i)) return false;
    const std::string key = state_key(i, left, right);
    if (failed_.contains(key)) return false;
    const int steps_behind = static_cast<int>(steps_.size() - i) - 1;
    const int most = right - left - steps_behind;
    const int least = steps_behind == 0 ? most : 1;
    for (const int size : sizes_to_try(i, left, right, rest_ms, least, most)) {
      const Step& step = steps_[i];
      const int first = step.from_left ? left : right - size;
      const double ms = sum_ms(first, size);
      const double bytes = sum_bytes(step.stage, first, size);
      if (add(step, ms, bytes)) {
        sizes_[static_cast<std::size_t>(step.stage)] = size;
        const bool found = step.from_left ? search(i + 1, left + size, right, rest_ms - ms)
                                          : search(i + 1, left, right - size, rest_ms - ms);
        if (found) return true;
      }
      remove(step, ms, bytes);
      if (out_of_nodes_) return false;
    }
    failed_.insert(key);
    return false;
  }

  // Sizes near an equal share come first, since they lead to a cut soonest.
  std::vector<int> sizes_to_try(std::size_t i, int left, int right, double rest_ms, int least, int most) const {
    std::vector<int> sizes;
    double ms = 0;
    const double share = rest_ms / static_cast<double>(steps_.size() - i);
    int nearest = least;
    for (int size = 1; size <= most; ++size) {
      ms += problem_.unit_ms[static_cast<std::size_t>(steps_[i].from_left ? left + size - 1 : right - size)];
      if (ms <= share) nearest = std::max(least, size);
      if (size >= least) sizes.push_back(size);
      if (size >= least && exceeds(steps_[i], ms)) break;
    }
    std::stable_sort(sizes.begin(), sizes.end(),
                     [&](int a, int b) { return std::abs(a - nearest) < std::abs(b - nearest); });
    return sizes;
  }

  bool exceeds(const Step& step, double ms) const {
    for (const Owner& owner : owners(step)) {
      const auto r = static_cast<std::size_t>(owner.rank);
      if (load_[r] + owner.weight * ms * slowness_[r] > bound_) return true;
    }
    return false;
  }

  // Work that the ranks of the steps from i on can still take.
  double capacity(std::size_t i) const {
    double ms = 0;
    for (std::size_t r = 0; r < load_.size(); ++r) {
      if (last_step_[r] >= static_cast<int>(i)) ms += (bound_ - load_[r]) / slowness_[r];
    }
    return ms * (1 + kRounding);
  }

  // The state on which the rest depends: the units left, and the loads of ranks with both decided and open stages.
  std::string state_key(std::size_t i, int left, int right) const {
    std::vector<std::int64_t> state = {static_cast<std::int64_t>(i), left, right};
    for (std::size_t r = 0; r < load_.size(); ++r) {
      if (last_step_[r] < static_cast<int>(i) || (load_[r] == 0 && bytes_[r] == 0)) continue;
      state.push_back(static_cast<std::int64_t>(r));
      state.push_back(std::llround(load_[r] / load_unit_));
      if (!problem_.limit_bytes.empty()) state.push_back(std::llround(bytes_[r]));
    }
    return {reinterpret_cast<const char*>(state.data()), state.size() * sizeof(state[0])};
  }

  double sum_ms(int first, int size) const {
    const auto begin = problem_.unit_ms.begin() + first;
    return std::accumulate(begin, begin + size, 0.0);
  }
  double sum_bytes(int stage, int first, int size) const {
    if (problem_.limit_bytes.empty()) return 0;
    const auto begin = problem_.unit_bytes[static_cast<std::size_t>(stage)].begin() + first;
    return std::accumulate(begin, begin + size, 0.0);
  }

  // False if it is too much for one of the ranks; remove() undoes it in either case.
  bool add(const Step& step, double ms, double bytes) {
    bool fits = true;
    for (const Owner& owner : owners(step)) {
      const auto r = static_cast<std::size_t>(owner.rank);
      load_[r] += owner.weight * ms * slowness_[r];
      bytes_[r] += bytes;
      fits = fits && load_[r] <= bound_ && (problem_.limit_bytes.empty() || bytes_[r] <= problem_.limit_bytes[r]);
    }
    return fits;
  }
  void remove(const Step& step, double ms, double bytes) {
    for (const Owner& owner : owners(step)) {
      const auto r = static_cast<std::size_t>(owner.rank);
      load_[r] -= owner.weight * ms * slowness_[r];
      bytes_[r] -= bytes;
      if (std::abs(load_[r]) < load_unit_) load_[r] = 0;
      if (std::abs(bytes_[r]) < 0.5) bytes_[r] = 0;
    }
  }

  const CutProblem& problem_;
  std::vector<std::vector<Owner>> owners_;
  std::vector<Step> steps_;
  std::vector<double> slowness_;
  double total_ = 0;
  double load_unit_ = 0;        // loads that differ by less are equal
  std::vector<int> last_step_;  // [rank]: of the steps that concern it
  double bound_ = 0;
  std::int64_t nodes_ = 0;  // over all bounds
  bool out_of_nodes_ = false;
  Partition sizes_;
  std::vector<double> load_, bytes_;  // [rank]
  std::unordered_set<std::string> failed_;
};

}  // namespace

namespace {

// [rank], of one micro-batch; empty if a rank exceeds its memory.
std::vector<double> rank_loads(const CutProblem& problem, const std::vector<std::vector<Owner>>& owners,
                               const Partition& partition) {
  std::vector<double> load(static_cast<std::size_t>(problem.placement.ranks), 0.0);
  std::vector<double> bytes(load.size(), 0.0);
  std::size_t unit = 0;
  for (std::size_t s = 0; s < partition.size(); ++s) {
    for (int i = 0; i < partition[s]; ++i, ++unit) {
      for (const Owner& owner : owners[s]) {
        const auto r = static_cast<std::size_t>(owner.rank);
        load[r] += owner.weight * problem.unit_ms[unit] * (problem.slowness.empty() ? 1.0 : problem.slowness[r]);
        if (!problem.limit_bytes.empty()) bytes[r] += problem.unit_bytes[s][unit];
      }
    }
  }
  for (std::size_t r = 0; r < problem.limit_bytes.size(); ++r) {
    if (bytes[r] > problem.limit_bytes[r]) return {};
  }
  return load;
}

// If the search was not exhaustive: local moves that lower the loads near the largest one.
Partition balanced(const CutProblem& problem, const Partition& start) {
  constexpr int kEvaluations = 20'000;  // a tenth of a second
  const std::vector<std::vector<Owner>> owners = owners_of(problem.placement);
  const double largest = slowest_rank(problem, start);
  const auto cost = [&](const Partition& partition) {
    const std::vector<double> loads = rank_loads(problem, owners, partition);
    double sum = loads.empty() ? kInfinity : 0;
    for (const double load : loads) sum += std::pow(load / largest, 32);
    return sum;
  };
  return refine_partition(start, cost, kEvaluations);
}

}  // namespace

double slowest_rank(const CutProblem& problem, const Partition& partition) {
  const std::vector<double> loads = rank_loads(problem, owners_of(problem.placement), partition);
  return loads.empty() ? kInfinity : *std::max_element(loads.begin(), loads.end());
}

std::optional<Cut> fastest_cut(const CutProblem& problem) {
  CutSearch search(problem);
  Cut cut;
  const auto take = [&] {
    cut.partition = search.partition();
    cut.slowest_ms = slowest_rank(problem, cut.partition);
  };
  if (search.within(kInfinity) != CutSearch::Answer::yes) return std::nullopt;
  take();
  double impossible = search.lower_bound() * (1 - 2 * kRounding);
  while (cut.slowest_ms - impossible > 4 * kRounding * cut.slowest_ms) {
    const double bound = (cut.slowest_ms + impossible) / 2;
    const CutSearch::Answer answer = search.within(bound);
    if (answer == CutSearch::Answer::yes) {
      take();
      continue;
    }
    cut.proven = cut.proven && answer == CutSearch::Answer::no;
    impossible = bound;
  }
  if (cut.proven || cut.slowest_ms <= 0) return cut;
  const Partition better = balanced(problem, cut.partition);
  if (const double ms = slowest_rank(problem, better); ms < cut.slowest_ms) {
    cut.partition = better;
    cut.slowest_ms = ms;
  }
  return cut;
}

namespace {

// Local moves from cut to cut, within a budget of evaluations.
class Refinement {
 public:
  Refinement(const std::function<double(const Partition&)>& cost, int evaluations, Partition start)
      : cost_(cost), left_(evaluations), best_(std::move(start)), best_ms_(cost_(best_)) {}

  // Goes downhill, then again and again moves a few units of the best cut and goes downhill from there.
  Partition run(bool once) {
    const std::size_t depth = best_.size();
    descend(best_, best_ms_, depth <= kFew ? depth : kNear);
    while (left_ > 0 && depth > 1 && !once) {
      Partition trial = best_;
      for (std::size_t moves = 2 + below(3); moves > 0; --moves) move(trial, below(depth), below(depth));
      if (trial == best_) {
        --left_;  // so that it ends if there is no other cut
        continue;
      }
      double ms = measured(trial);
      descend(trial, ms, kNear);
      if (ms < best_ms_ * (1 - kWorthIt)) best_ = std::move(trial), best_ms_ = ms;
    }
    return best_;
  }

 private:
  static constexpr double kWorthIt = 1e-6;
  static constexpr std::size_t kNear = 2;
  static constexpr std::size_t kFew = 16;  // up to this number of stages all pairs are tried

  std::size_t below(std::size_t n) { return scattered(random_ += kGoldenRatio) % n; }

  double measured(const Partition& partition) {
    --left_;
    return cost_(partition);
  }

  static bool move(Partition& partition, std::size_t from, std::size_t to) {
    if (from == to || partition[from] <= 1) return false;
    --partition[from];
    ++partition[to];
    return true;
  }

  // Makes every move of a unit that helps at once, and goes on from there. Units move by at most `reach` stages.
  void descend(Partition& partition, double& ms, std::size_t reach) {
    const std::size_t depth = partition.size();
    std::vector<std::pair<std::size_t, std::size_t>> moves;  // near ones first
    for (std::size_t distance = 1; distance <= std::min(reach, depth - 1); ++distance)
      for (std::size_t i = 0; i + distance < depth; ++i) {
        moves.emplace_back(i, i + distance);
        moves.emplace_back(i + distance, i);
      }
    for (std::size_t at = 0, since = 0; since < moves.size() && left_ > 0; at = (at + 1) % moves.size(), ++since) {
      Partition trial = partition;
      if (!move(trial, moves[at].first, moves[at].second)) continue;
      const double value = measured(trial);
      if (value >= ms * (1 - kWorthIt)) continue;
      ms = value;
      partition = std::move(trial);
      since = 0;
    }
  }

  const std::function<double(const Partition&)>& cost_;
  int left_;
  std::uint64_t random_ = 0;
  Partition best_;
  double best_ms_;
};

}  // namespace

Partition refine_partition(Partition start, const std::function<double(const Partition&)>& cost, int evaluations,
                           bool once) {
  return Refinement(cost, evaluations, std::move(start)).run(once);
}

Partition even_cut(const std::vector<double>& unit_ms, int stages) {
  const double total = std::accumulate(unit_ms.begin(), unit_ms.end(), 0.0);
  const int units = static_cast<int>(unit_ms.size());
  Partition cuts;
  double so_far = 0;
  int first = 0;
  for (int s = 0; s + 1 < stages; ++s) {
    const double end = total * (s + 1) / stages;
    const int most = units - (stages - 1 - s);  // every later stage needs a unit
    int last = first;
    // A unit belongs to the stage whose share contains its middle.
    while (last < most && (last == first || so_far + unit_ms[static_cast<std::size_t>(last)] / 2 <= end)) {
      so_far += unit_ms[static_cast<std::size_t>(last++)];
    }
    cuts.push_back(last - first);
    first = last;
  }
  cuts.push_back(units - first);
  return cuts;
}

}  // namespace train_gpt
