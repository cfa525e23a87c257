#include "pipeline/search/own_orders.h"

#include <algorithm>
#include <set>

#include "pipeline/search/blocks.h"
#include "pipeline/search/bound.h"
#include "pipeline/search/improve.h"

namespace train_gpt::search {
namespace {

// Work per problem: how many policies are tried, fewer if lists are long.
constexpr std::int64_t kPolicies = 500, kLeastPolicies = 24, kPolicyActions = 1'500'000;
constexpr std::int64_t kSample = 48, kLeastSample = 12, kSampleActions = 400'000;
// Local search, in actions evaluated: the longer the lists, the more there is to try, until so little of it can be
// tried that it is not worth its while.
constexpr std::int64_t kImproved = 75;  // times the square of the number of actions
constexpr std::int64_t kLeastActions = 100'000, kMostActions = 100'000'000;
constexpr std::int64_t kLong = 100'000'000'000;  // by the number of actions

constexpr std::size_t kStarts = 24;     // orders that are kept, and that local search starts from
constexpr std::size_t kRounds = 4;      // of which the first is for all
constexpr std::size_t kRemembered = 2;  // policies

std::int64_t actions_of(const Problem& problem) { return 3ll * problem.stages * problem.micro_batches; }

Score bounds_of(const Problem& problem) {
  Score bound;
  bound.objective = lower_bound(problem);
  if (problem.objective == Objective::makespan) return bound;
  Problem other = problem;
  other.objective = Objective::makespan;
  bound.other = lower_bound(other);
  return bound;
}

// Warm-up depths that some idle time up to a few F allows, least idle first; the first entry is "as many as fit".
std::vector<std::vector<int>> warmups(const Problem& problem, double bound) {
  std::vector<std::vector<int>> choices{{}};
  const auto& forward = problem.duration[kForward];
  const double step = *std::max_element(forward.begin(), forward.end()) / 32;
  std::set<std::vector<int>> seen;
  for (int i = 0; i <= 64 && choices.size() <= 24; ++i) {
    std::vector<int> counts = warmup_counts(problem, bound + i * step);
    if (!counts.empty() && seen.insert(counts).second) choices.push_back(std::move(counts));
  }
  return choices;
}

// The promising ones first.
std::vector<Policy> policies(const Problem& problem, double bound) {
  std::vector<Policy::Chunk> chunk_rules{Policy::Chunk::oldest_micro_batch};
  if (problem.chunks > 1)
    chunk_rules = {Policy::Chunk::oldest_micro_batch, Policy::Chunk::deepest, Policy::Chunk::shallowest};
  std::vector<Policy> all;
  const auto add = [&](Policy policy) {
    for (const double gap : {0.0, 0.25, 0.5, 1.0}) {
      policy.least_gap = gap;
      for (const Policy::Chunk rule : chunk_rules) {
        policy.chunk = rule;
        all.push_back(policy);
      }
    }
  };
  const bool scarce = *std::min_element(problem.limit.begin(), problem.limit.end()) < problem.ranks;
  // Their time grows with the square of a list.
  constexpr std::int64_t kMostActionsOfTrains = 20'000;
  for (const bool slots : {false, true})
    for (const double slack : {0.0, 0.5, 1.0, 2.0, 4.0, 8.0}) {
      if (!scarce || actions_of(problem) > kMostActionsOfTrains) continue;
      Policy policy;
      policy.trains = TrainPolicy{slack, slots};
      all.push_back(std::move(policy));
    }
  for (const Timetable& block : scarce ? building_blocks(problem, 150) : std::vector<Timetable>{})
    for (const double gap : {0.0, 1.0}) {
      Policy policy;
      policy.least_gap = gap;
      policy.timetable = block;
      all.push_back(std::move(policy));
    }
  for (const bool input_first : {false, true}) {
    Policy policy;
    policy.from_the_end = true;
    policy.input_first = input_first;
    add(policy);
  }
  for (const std::vector<int>& warmup : warmups(problem, bound)) {
    for (const bool input_first : {false, true})
      for (const bool make_room : {false, true}) {
        Policy policy;
        policy.input_first = input_first;
        policy.make_room = make_room;
        policy.warmup = warmup;
        add(policy);
      }
  }
  return all;
}

}  // namespace

Pool::Pool(const Problem& problem, Work& work)
    : problem_(problem), work_(work), evaluator_(problem, false), bound_(bounds_of(problem)) {}

std::optional<double> Pool::offer(Order order) {
  work_.add(actions_of(problem_));
  if (!evaluator_.evaluate(order)) return std::nullopt;
  Found found{std::move(order), evaluator_.score(), evaluator_.first_end()};
  if (!problem_.fused.empty()) {
    Order paired = with_pairs(found.order);
    work_.add(actions_of(problem_));
    if (evaluator_.evaluate(paired) && evaluator_.score().better_than(found.score))
      found = {std::move(paired), evaluator_.score(), evaluator_.first_end()};
  }
  const double objective = found.score.objective;
  keep(std::move(found));
  return objective;
}

void Pool::keep(Found found) {
  // One of several orders with the same figures is enough: starts should differ.
  const auto same = [&](const Found& other) {
    return !other.score.better_than(found.score) && !found.score.better_than(other.score);
  };
  if (std::any_of(orders_.begin(), orders_.end(), same)) return;
  const auto worse = std::find_if(orders_.begin(), orders_.end(),
                                  [&](const Found& other) { return found.score.better_than(other.score); });
  orders_.insert(worse, std::move(found));
  if (orders_.size() > kStarts) orders_.pop_back();
}

bool Pool::at_bound() const { return !orders_.empty() && best().score.objective <= bound_.objective * (1 + 2e-9); }

bool Pool::cannot_improve() const { return best().score.reaches(bound_); }

std::vector<Policy> build_orders(const Problem& problem, Policies which, Pool& pool, Work& work) {
  const std::int64_t actions = actions_of(problem);
  const bool sample = which == Policies::sample;
  const std::int64_t wanted = sample ? std::clamp(kSampleActions / actions, kLeastSample, kSample)
                                     : std::clamp(kPolicyActions / actions, kLeastPolicies, kPolicies);
  std::int64_t budget = wanted * actions;
  std::vector<std::pair<double, Policy>> results;
  const std::vector<Policy> all = policies(problem, pool.bound().objective);
  const std::size_t stride = sample ? std::max<std::size_t>(all.size() / static_cast<std::size_t>(wanted), 1) : 1;
  for (std::size_t i = 0; i < all.size(); i += stride) {
    const Policy& policy = all[i];
    // Fewer once the bound is reached; what is left then is the other measure and memory.
    budget -= actions_of(problem) * (pool.at_bound() ? 8 : 1);
    if (budget < 0 || pool.cannot_improve() || work.stopped()) break;
    work.add(4 * actions_of(problem));
    std::optional<Order> order = list_schedule(problem, policy);
    if (!order) continue;
    if (const std::optional<double> objective = pool.offer(std::move(*order))) results.emplace_back(*objective, policy);
  }
  std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Policy> best;
  for (auto& [objective, policy] : results)
    if (best.size() < kRemembered) best.push_back(std::move(policy));
  return best;
}

void build_orders(const Problem& problem, const std::vector<Policy>& policies, Pool& pool, Work& work) {
  for (const Policy& policy : policies) {
    if (pool.cannot_improve() || work.stopped()) return;
    work.add(4 * actions_of(problem));
    if (std::optional<Order> order = list_schedule(problem, policy)) pool.offer(std::move(*order));
  }
}

void improve_orders(const Problem& problem, Pool& pool, Work& work) {
  const std::int64_t actions = actions_of(problem);
  const std::int64_t most = std::clamp(kLong / actions, kLeastActions, kMostActions);
  const std::int64_t total = std::clamp(kImproved * actions * actions, kLeastActions, most);
  std::uint64_t seed = 0;
  const auto improved_from = [&](const Order& order, std::int64_t budget, bool polish) {
    // Which temperature suits depends on how rugged the problem is, and scarce memory makes it very rugged: take turns.
    constexpr double kTemperatures[3] = {0.15, 0.5, 0.05};
    const double temperature = kTemperatures[seed++ % 3];
    return improve(problem, order, {budget, pool.bound(), polish, temperature, seed}, work);
  };
  // How good an order is says little about how good it may become: many get a short run, the better ones a longer one.
  std::vector<Improvement> field;
  for (const Found& start : pool.orders()) field.push_back({without_pairs(start.order), start.score, 0});
  for (std::size_t left = field.size(); left > 0 && !pool.at_bound() && !work.stopped(); left /= 3) {
    field.resize(left);
    for (Improvement& it : field) {
      if (pool.at_bound() || work.stopped()) break;
      it = improved_from(it.order, total / static_cast<std::int64_t>(kRounds * left), false);
      pool.offer(it.order);
    }
    std::stable_sort(field.begin(), field.end(),
                     [](const Improvement& a, const Improvement& b) { return a.score.better_than(b.score); });
  }
  if (!pool.cannot_improve() && !work.stopped())
    pool.offer(improved_from(without_pairs(pool.best().order), total / 12, true).order);
}

}  // namespace train_gpt::search
