#include "pipeline/search/placement_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "pipeline/search/bound.h"
#include "pipeline/search/extend.h"
#include "pipeline/search/ladder.h"
#include "pipeline/search/named.h"

namespace train_gpt::search {
namespace {

constexpr int kAllParts = 64;            // micro-batches up to which every way to part them is tried
constexpr double kWins = 1 - 1e-9;       // what is not better by more than rounding is no better
constexpr double kWorthBuilding = 1.15;  // times as slow as another placement, see promises()
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

Placement resized(const Placement& placement, int micro_batches) {
  if (placement.kind == Placement::Kind::v_shape) return Placement::v_shape(placement.ranks, micro_batches);
  return Placement::loop(placement.ranks, placement.chunks, micro_batches);
}

// Above this, orders are not built but extended: a warm-up, many periods, a cooldown.
int largest_built(int ranks) { return std::max(kAllParts, ladder_below(4 * ranks)); }

Order joined(Order first, const Order& second) {
  for (std::size_t rank = 0; rank < first.size(); ++rank)
    first[rank].insert(first[rank].end(), second[rank].begin(), second[rank].end());
  return first;
}

bool is_short(const Problem& problem) {
  constexpr int kShort = 300;
  return 3ll * problem.stages * problem.micro_batches < kShort;
}

// The rest of a gap is not worth the time that local search takes on a long list.
bool worth_improving(const Pool& pool, const Problem& problem) {
  return is_short(problem) || pool.best().score.objective > pool.bound().objective * 1.0002;
}

}  // namespace

PlacementSearch::PlacementSearch(const SearchRequest& request, const Placement& placement, Work& work,
                                 const Siblings& siblings)
    : request_(request), placement_(placement), work_(work), siblings_(siblings) {
  bound_ = lower_bound(make_problem(request, placement));
  const std::vector<double>& limits = request.memory_limit;
  most_memory_ = limits.empty() ? kNoLimit : *std::max_element(limits.begin(), limits.end());
  levels_ = {most_memory_};
  rung_ = {0};
}

// The request for fewer micro-batches within one of the lower limits.
Problem PlacementSearch::problem_at(int micro_batches, std::size_t level) const {
  SearchRequest request = request_;
  request.micro_batches = micro_batches;
  const bool exact = level + 1 == levels_.size() && rung_[level] == 0;
  const auto lowered = [&](double limit) {
    if (exact) return limit;
    const auto above = std::upper_bound(levels_.begin(), levels_.begin() + static_cast<std::ptrdiff_t>(level) + 1,
                                        limit + kMemorySlack);
    return above == levels_.begin() ? limit : *(above - 1);
  };
  for (double& limit : request.memory_limit) limit = lowered(limit);
  if (request.memory_limit.empty() && levels_[level] < micro_batches) request.memory_limit = {levels_[level]};
  return make_problem(request, resized(placement_, micro_batches));
}

double PlacementSearch::bound_at(int micro_batches, std::size_t level) {
  const auto [entry, fresh] = bounds_.try_emplace({micro_batches, level}, 0.0);
  if (fresh) entry->second = lower_bound(problem_at(micro_batches, level));
  return entry->second;
}

// Limits that let all micro-batches live at once are the same.
std::size_t PlacementSearch::level_at(int micro_batches, std::size_t level) const {
  const auto enough = std::lower_bound(levels_.begin(), levels_.end(), micro_batches - kMemorySlack);
  return std::min(level, static_cast<std::size_t>(enough - levels_.begin()));
}

bool PlacementSearch::searched(int micro_batches, std::size_t level) const {
  return rung_[level] != 0 || levels_[level] >= micro_batches - kMemorySlack;
}

const std::vector<Order>& PlacementSearch::named(int micro_batches) {
  const auto [entry, fresh] = named_.try_emplace(micro_batches);
  if (!fresh) return entry->second;
  SearchRequest request = request_;
  request.micro_batches = micro_batches;
  const Placement placement = resized(placement_, micro_batches);
  const Problem problem = make_problem(request, placement);
  for (const ScheduleRequest& wanted : named_requests(request, placement)) {
    work_.add(3ll * problem.stages * micro_batches);
    if (std::optional<Order> order = from_schedule(problem, make_schedule(wanted)))
      entry->second.push_back(std::move(*order));
  }
  return entry->second;
}

// The rungs of the ladder, and in between the peaks of named schedules of all numbers of micro-batches that parts may
// have: those use a limit exactly.
void PlacementSearch::make_levels() {
  if (levels_made_) return;
  levels_made_ = true;
  const double most = std::min<double>(most_memory_, request_.micro_batches);
  std::vector<std::pair<double, char>> all;
  for (const double limit : memory_ladder(placement_.chunks, request_.weight_memory, most)) all.emplace_back(limit, 1);
  std::set<int> sizes;
  for (int m = request_.micro_batches; m > kAllParts; m = (m + 1) / 2) sizes.insert({m, m / 2});
  for (int m = 1; m <= std::min(kAllParts, request_.micro_batches); ++m) sizes.insert(m);
  if (most_memory_ < request_.micro_batches) {
    for (const int m : sizes) {
      const Problem problem = make_problem(request_, placement_);
      for (const Order& order : named(m)) {
        double peak = 0;
        for (const RankOrder& list : order) peak = std::max(peak, peak_of(problem, list));
        if (peak <= most + kMemorySlack) all.emplace_back(peak, 0);
      }
    }
  }
  all.emplace_back(most, 0);
  std::sort(all.begin(), all.end());
  levels_.clear();
  rung_.clear();
  for (const auto& [limit, rung] : all) {
    if (!levels_.empty() && limit - levels_.back() < kMemorySlack) {
      rung_.back() |= rung;
      continue;
    }
    levels_.push_back(limit);
    rung_.push_back(rung);
  }
}

void PlacementSearch::solve() {
  make_levels();
  best_ = answer(request_.micro_batches, levels_.size() - 1, kNoLimit).answer;
  // A search that was stopped early may have nothing yet.
  const Problem problem = make_problem(request_, placement_);
  if (best_) return;
  Pool pool(problem, work_);
  pool.offer(one_at_a_time(problem));
  best_ = std::make_shared<const Found>(pool.best());
}

// Whatever is not faster than `target` may be left out: the caller has that already.
const PlacementSearch::Known& PlacementSearch::answer(int micro_batches, std::size_t level, double target) {
  level = level_at(micro_batches, level);
  Known& known = answers_[{micro_batches, level}];
  if (target <= known.below) return known;
  known.below = target;
  const auto best = [&] { return known.answer ? known.answer->score.objective : kNoLimit; };
  const auto wins = [&](double bound) { return bound < std::min(target, best()) * kWins; };
  const double bound = bound_at(micro_batches, level);
  if (!wins(bound) || work_.stopped()) return known;
  const auto offer = [&](const Answer& found) {
    if (known.answer && !found->score.better_than(known.answer->score)) return;
    known.answer = found;
    known.inherited = false;
  };
  for (const Answer& found : improved(micro_batches, level).orders) offer(found);
  if (request_.parts && level > 0 && wins(bound_at(micro_batches, level - 1))) {
    const Known& lower = answer(micro_batches, level - 1, std::min(target, best()));
    if (lower.answer) offer(lower.answer);
    known.inherited = known.answer && known.answer == lower.answer;
  }
  if (wins(bound) && !work_.stopped()) {
    const Problem problem = problem_at(micro_batches, level);
    Pool pool(problem, work_);
    if (known.answer) pool.keep(*known.answer);
    if (request_.parts) try_parts(micro_batches, level, target, pool);
    if (searched(micro_batches, level)) {
      const std::size_t same = level_at(micro_batches + 1, level);
      const Built& more = built(micro_batches + 1, same);
      if (!more.orders.empty())
        pool.offer(without_last(problem_at(micro_batches + 1, same), more.orders.front()->order));
    }
    if (!pool.empty()) offer(std::make_shared<const Found>(pool.best()));
  }
  if (known.answer && request_.parts) take_leaner(micro_batches, level, known.answer);
  return known;
}

// The same in less memory, as far down as the levels below reach it. Only where that takes no time to speak of.
void PlacementSearch::take_leaner(int micro_batches, std::size_t level, Answer& best) {
  constexpr std::int64_t kSmall = 100'000;
  if (3ll * placement_.depth() * micro_batches > kSmall) return;
  while (level-- > 0 && bound_at(micro_batches, level) <= best->score.objective * (2 - kWins)) {
    const Built& levels = built(micro_batches, level);
    if (levels.orders.empty()) return;
    const Answer& leaner = levels.orders.front();
    if (leaner->score.objective > best->score.objective * (2 - kWins)) return;
    if (leaner->score.better_than(best->score)) best = leaner;
  }
}

// The named schedules and, on a rung, what a sample of all policies builds.
const PlacementSearch::Built& PlacementSearch::sampled(int micro_batches, std::size_t level) {
  const auto [entry, fresh] = sampled_.try_emplace({micro_batches, level});
  if (!fresh) return entry->second;
  const Problem problem = problem_at(micro_batches, level);
  Pool pool(problem, work_);
  for (const Order& order : named(micro_batches)) pool.offer(order);
  if (searched(micro_batches, level)) {
    pool.offer(one_at_a_time(problem));
    if (!request_.parts) build_orders(problem, Policies::few, pool, work_);
    if (!pool.at_bound()) entry->second.policies = build_orders(problem, Policies::sample, pool, work_);
  }
  entry->second.take(pool);
  return entry->second;
}

// The orders of all policies, on a size of the ladder and where the sample is about as fast as on any other placement;
// elsewhere what follows from the size below.
const PlacementSearch::Built& PlacementSearch::built(int micro_batches, std::size_t level) {
  if (const auto known = built_.find({micro_batches, level}); known != built_.end()) return known->second;
  const int few = std::min(ladder_below(micro_batches), largest_built(placement_.ranks));
  const Problem problem = problem_at(micro_batches, level);
  Pool pool(problem, work_);
  Built result;
  if (few == micro_batches) {
    result = sampled(micro_batches, level);
    for (const Answer& found : result.orders) pool.keep(*found);
    if (searched(micro_batches, level) && !pool.at_bound() && promises(micro_batches, level, kWorthBuilding))
      result.policies = build_orders(problem, Policies::all, pool, work_);
  } else {
    for (const Order& order : named(micro_batches)) pool.offer(order);
    if (searched(micro_batches, level)) pool.offer(one_at_a_time(problem));
    const std::size_t few_level = level_at(few, level);
    if (searched(micro_batches, level) && !pool.at_bound() && !work_.stopped() &&
        promises(few, few_level, kWorthBuilding)) {
      const Built& smaller = built(few, few_level);
      constexpr std::int64_t kQuick = 2'000'000;
      if (3ll * problem.stages * micro_batches < kQuick) build_orders(problem, smaller.policies, pool, work_);
      if (!pool.at_bound() && !smaller.orders.empty())
        if (auto longer = extend(problem_at(few, few_level), smaller.orders.front()->order, problem))
          pool.offer(std::move(*longer));
    }
  }
  result.take(pool);
  return built_[{micro_batches, level}] = std::move(result);
}

// The same after local search from the best of it, where that is worth its while.
const PlacementSearch::Built& PlacementSearch::improved(int micro_batches, std::size_t level) {
  if (!improves(micro_batches, level)) return built(micro_batches, level);
  const auto [entry, fresh] = improved_.try_emplace({micro_batches, level});
  if (!fresh) return entry->second;
  const Problem problem = problem_at(micro_batches, level);
  Pool pool(problem, work_);
  for (const Answer& found : built(micro_batches, level).orders) pool.keep(*found);
  if (worth_improving(pool, problem)) improve_orders(problem, pool, work_);
  entry->second.take(pool);
  return entry->second;
}

void PlacementSearch::Built::take(const Pool& pool) {
  orders.clear();
  for (const Found& found : pool.orders()) orders.push_back(std::make_shared<const Found>(found));
}

// Local search takes long. It is for some sizes, and for placements that promise something.
bool PlacementSearch::improves(int micro_batches, std::size_t level) {
  constexpr double kAboutAsFast = 1.05;
  const double limit = levels_[level];
  const bool whole = limit >= micro_batches - kMemorySlack ||
                     (std::abs(limit - std::round(limit)) < kMemorySlack && on_ladder(static_cast<int>(limit + 0.5)));
  if (!searched(micro_batches, level) || !(whole || is_short(problem_at(micro_batches, level)))) return false;
  if (!on_ladder(micro_batches) || micro_batches > largest_built(placement_.ranks)) return false;
  return promises(micro_batches, level, kAboutAsFast);
}

// Whether the sample here is at most this many times as slow as that of any other placement in the same memory.
bool PlacementSearch::promises(int micro_batches, std::size_t level, double factor) {
  const Built& mine = sampled(micro_batches, level);
  if (mine.orders.empty()) return false;
  for (const std::unique_ptr<PlacementSearch>& other : siblings_) {
    if (other.get() == this) continue;
    // A list that a bound rules out need not be built.
    if (other->bound_within(micro_batches, levels_[level]) * factor >= mine.orders.front()->score.objective) continue;
    const Built& theirs = other->sampled_within(micro_batches, levels_[level]);
    if (theirs.orders.empty()) continue;
    if (theirs.orders.front()->score.objective * factor < mine.orders.front()->score.objective) return false;
  }
  return true;
}

const PlacementSearch::Built& PlacementSearch::sampled_within(int micro_batches, double limit) {
  return sampled(micro_batches, level_within(micro_batches, limit));
}

double PlacementSearch::bound_within(int micro_batches, double limit) {
  return bound_at(micro_batches, level_within(micro_batches, limit));
}

// The highest level that is searched and does not exceed a limit.
std::size_t PlacementSearch::level_within(int micro_batches, double limit) {
  make_levels();
  const auto above = std::upper_bound(levels_.begin(), levels_.end(), limit + kMemorySlack);
  std::size_t level = static_cast<std::size_t>(std::max<std::ptrdiff_t>(above - levels_.begin() - 1, 0));
  level = level_at(micro_batches, level);
  while (level > 0 && !searched(micro_batches, level)) --level;
  return level;
}

void PlacementSearch::try_parts(int micro_batches, std::size_t level, double target, Pool& pool) {
  const bool all = micro_batches <= kAllParts;
  const int half = micro_batches / 2;
  const bool makespan = request_.objective == Objective::makespan;
  const auto wins = [&](double bound) {
    return bound < std::min(target, pool.empty() ? kNoLimit : pool.best().score.objective) * kWins;
  };
  for (int first = all ? 1 : half; first <= (all ? micro_batches - 1 : micro_batches - half) && first > 0; ++first) {
    const int second = micro_batches - first;
    if (work_.stopped() || second < 1) return;
    if (!wins(joined_bound(problem_at(first, level), problem_at(second, level)))) continue;
    const Known &a = answer(first, level, kNoLimit), &b = answer(second, level, kNoLimit);
    if (!a.answer || !b.answer) continue;
    // Parts that are those of the level below were put together there.
    if (a.inherited && b.inherited && level == level_at(first, level) && level == level_at(second, level) &&
        level_at(micro_batches, level - 1) == level - 1)
      continue;
    // The second list starts on no rank before the first one ends there.
    if (makespan && !wins(a.answer->first_end + b.answer->score.objective)) continue;
    pool.offer(joined(a.answer->order, b.answer->order));
  }
}

Schedule PlacementSearch::best_schedule() const {
  return to_schedule(make_problem(request_, placement_), best_->order);
}

}  // namespace train_gpt::search
