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

constexpr int kAllParts = 64;       // micro-batches up to which every way to part them is tried
constexpr double kWins = 1 - 1e-9;  // what is not better by more than rounding is no better
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
  best_ = answer(request_.micro_batches, levels_.size() - 1);
}

PlacementSearch::Answer PlacementSearch::answer(int micro_batches, std::size_t level) {
  level = level_at(micro_batches, level);
  if (const auto known = answers_.find({micro_batches, level}); known != answers_.end()) return known->second;
  const Problem problem = problem_at(micro_batches, level);
  const bool improving = improves(micro_batches, level);
  Pool pool(problem, work_);
  own(micro_batches, level);
  for (const Answer& found : own_.at({micro_batches, level})) pool.keep(*found);
  if (improving) improve_orders(problem, pool, work_);
  Answer lower;
  const auto wins = [&](double bound) { return pool.empty() || bound < pool.best().score.objective * kWins; };
  if (level > 0 && wins(bound_at(micro_batches, level - 1))) lower = answer(micro_batches, level - 1);
  if (lower) pool.keep(*lower);
  if (wins(pool.bound().objective) && !work_.stopped()) {
    try_parts(micro_batches, level, pool);
    if (searched(micro_batches, level)) {
      const std::size_t same = level_at(micro_batches + 1, level);
      if (const Answer more = own(micro_batches + 1, same))
        pool.offer(without_last(problem_at(micro_batches + 1, same), more->order));
    }
    if (improving) improve_orders(problem, pool, work_);
  }
  Answer best;
  if (lower && !pool.best().score.better_than(lower->score))
    best = lower;
  else if (!pool.empty())
    best = std::make_shared<const Found>(pool.best());
  if (best) take_leaner(micro_batches, level, best);
  return answers_[{micro_batches, level}] = best;
}

// The same in less memory, as far down as the levels below reach it. Only where that takes no time to speak of.
void PlacementSearch::take_leaner(int micro_batches, std::size_t level, Answer& best) {
  constexpr std::int64_t kSmall = 100'000;
  if (3ll * placement_.depth() * micro_batches > kSmall) return;
  while (level-- > 0 && bound_at(micro_batches, level) <= best->score.objective * (2 - kWins)) {
    const Answer leaner = own(micro_batches, level);
    if (!leaner || leaner->score.objective > best->score.objective * (2 - kWins)) return;
    if (leaner->score.better_than(best->score)) best = leaner;
  }
}

// What is built for just these numbers, and the named schedules. Nothing if there is neither.
PlacementSearch::Answer PlacementSearch::own(int micro_batches, std::size_t level) {
  if (const auto known = own_.find({micro_batches, level}); known != own_.end())
    return known->second.empty() ? nullptr : known->second.front();
  const Problem problem = problem_at(micro_batches, level);
  Pool pool(problem, work_);
  for (const Order& order : named(micro_batches)) pool.offer(order);
  if (searched(micro_batches, level)) {
    pool.offer(one_at_a_time(problem));
    const int built = std::min(ladder_below(micro_batches), largest_built(placement_.ranks));
    const std::size_t built_level = level_at(built, level);
    if (pool.at_bound() || work_.stopped()) {
      // Nothing is faster.
    } else if (built == micro_batches) {
      policies_[{micro_batches, level}] = build_orders(problem, pool, work_);
    } else if (const Answer few = own(built, built_level)) {
      const std::int64_t kQuick = 2'000'000;
      if (3ll * problem.stages * micro_batches < kQuick)
        build_orders(problem, policies_[{built, built_level}], pool, work_);
      if (!pool.at_bound())
        if (std::optional<Order> longer = extend(problem_at(built, built_level), few->order, problem))
          pool.offer(std::move(*longer));
    }
  }
  std::vector<Answer>& kept = own_[{micro_batches, level}];
  for (const Found& found : pool.orders()) kept.push_back(std::make_shared<const Found>(found));
  return kept.empty() ? nullptr : kept.front();
}

// Local search takes long. It is for some sizes, and placements on which what is built is about as fast as on any
// other.
bool PlacementSearch::improves(int micro_batches, std::size_t level) {
  constexpr double kAboutAsFast = 1.05;
  constexpr std::int64_t kShort = 300;
  const double limit = levels_[level];
  const bool whole = limit >= micro_batches - kMemorySlack ||
                     (std::abs(limit - std::round(limit)) < kMemorySlack && on_ladder(static_cast<int>(limit + 0.5)));
  const bool is_short = 3ll * placement_.depth() * micro_batches < kShort;
  if (!searched(micro_batches, level) || !(whole || is_short)) return false;
  if (!on_ladder(micro_batches) || micro_batches > largest_built(placement_.ranks)) return false;
  const Answer mine = own(micro_batches, level);
  for (const std::unique_ptr<PlacementSearch>& other : siblings_) {
    if (other.get() == this) continue;
    const Answer theirs = other->built_within(micro_batches, levels_[level]);
    if (theirs && theirs->score.objective * kAboutAsFast < mine->score.objective) return false;
  }
  return true;
}

PlacementSearch::Answer PlacementSearch::built_within(int micro_batches, double limit) {
  make_levels();
  const auto above = std::upper_bound(levels_.begin(), levels_.end(), limit + kMemorySlack);
  std::size_t level = std::max<std::ptrdiff_t>(above - levels_.begin() - 1, 0);
  level = level_at(micro_batches, level);
  while (level > 0 && !searched(micro_batches, level)) --level;
  return own(micro_batches, level);
}

void PlacementSearch::try_parts(int micro_batches, std::size_t level, Pool& pool) {
  const bool all = micro_batches <= kAllParts;
  const int half = micro_batches / 2;
  for (int first = all ? 1 : half; first <= (all ? micro_batches - 1 : micro_batches - half) && first > 0; ++first) {
    const int second = micro_batches - first;
    const auto wins = [&] {
      return pool.empty() ||
             joined_bound(problem_at(first, level), problem_at(second, level)) < pool.best().score.objective * kWins;
    };
    if (work_.stopped() || second < 1) return;
    if (!wins()) continue;
    const Answer a = answer(first, level), b = answer(second, level);
    if (!a || !b) continue;
    // A limit that changed neither part changes nothing here.
    const bool rung = level == 0 || searched(micro_batches, level);
    if (!rung && a == answer(first, level - 1) && b == answer(second, level - 1) &&
        level - 1 < level_at(micro_batches, level))
      continue;
    pool.offer(joined(a->order, b->order));
  }
}

Schedule PlacementSearch::best_schedule() const {
  return to_schedule(make_problem(request_, placement_), best_->order);
}

}  // namespace train_gpt::search
