#include "pipeline/search/search.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>

#include "pipeline/search/blocks.h"
#include "pipeline/search/bound.h"
#include "pipeline/search/greedy.h"
#include "pipeline/search/improve.h"
#include "pipeline/search/named.h"
#include "pipeline/search/problem.h"

namespace train_gpt {
namespace {

using namespace search;

// Work per request, in actions placed or evaluated: a few seconds together on one core.
constexpr std::int64_t kGreedyBudget = 24'000'000;
constexpr std::int64_t kSurveyBudget = 120'000'000;  // local search on every placement
constexpr std::int64_t kRefineBudget = 240'000'000;  // local search on the most promising one
constexpr std::size_t kStarts = 6;                   // orders per placement that local search starts from

void check(const SearchRequest& request) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("auto schedule: " + what); };
  if (request.ranks < 1) refuse("stages is " + std::to_string(request.ranks) + "; it must be at least 1");
  if (request.micro_batches < 1)
    refuse("micro-batches is " + std::to_string(request.micro_batches) + "; it must be at least 1");
  if (!(request.weight_memory >= 0 && request.weight_memory <= 1))
    refuse("weight-memory is " + std::to_string(request.weight_memory) + "; it must lie in 0 .. 1");
  for (const int chunks : request.loop_chunks)
    if (chunks < 1 || chunks > 80) refuse("chunks is " + std::to_string(chunks) + "; it must lie in 1 .. 80");
  const std::size_t limits = request.memory_limit.size();
  if (limits > 1 && limits != static_cast<std::size_t>(request.ranks))
    refuse("memory-limit has " + std::to_string(limits) + " values; give one or " + std::to_string(request.ranks));
  for (const double limit : request.memory_limit) {
    if (limit >= Problem::kLeastLimit - kMemorySlack) continue;
    char text[160];
    std::snprintf(
        text, sizeof text,
        "memory-limit is %g; the least under which any schedule can run is 1 (one micro-batch through a rank's "
        "share)",
        limit);
    refuse(text);
  }
}

Score score_of(const SearchCandidate& candidate, SearchObjective objective) {
  const bool makespan = objective == SearchObjective::makespan;
  return {makespan ? candidate.makespan : candidate.span, makespan ? candidate.span : candidate.makespan,
          candidate.peak_live};
}

// One placement, the orders found on it so far, best first.
class PlacementSearch {
 public:
  PlacementSearch(const SearchRequest& request, const Placement& placement)
      : problem_(std::make_unique<Problem>(make_problem(request, placement))),
        evaluator_(std::make_unique<Evaluator>(*problem_)),
        bound_(bounds_of(*problem_)) {}

  double bound() const { return bound_.objective; }
  const Problem& problem() const { return *problem_; }
  bool found() const { return !orders_.empty(); }
  const Score& best() const { return orders_.front().score; }
  Schedule best_schedule() const { return to_schedule(*problem_, orders_.front().order); }

  void offer(const Schedule& schedule) {
    if (schedule.placement.kind != problem_->placement.kind || schedule.chunks != problem_->chunks) return;
    if (std::optional<Order> order = from_schedule(*problem_, schedule)) offer(std::move(*order));
  }

  // List scheduling under many policies, the promising ones first; fewer once the bound is reached.
  void build(std::int64_t budget) {
    offer(one_at_a_time(*problem_));
    const std::int64_t actions = 3ll * problem_->stages * problem_->micro_batches;
    for (const Policy& policy : policies()) {
      budget -= actions * (at_bound() ? 4 : 1);
      if (budget < 0 || best().reaches(bound_)) return;
      if (std::optional<Order> order = list_schedule(*problem_, policy)) offer(std::move(*order));
    }
  }

  // Local search from each of the best few orders, until one reaches the bound.
  void survey(std::int64_t budget) {
    const std::vector<Found> starts = orders_;
    for (const Found& start : starts) {
      if (at_bound()) return;
      improve_from(start.order, budget / static_cast<std::int64_t>(starts.size()), false);
    }
  }

  // Longer local search from the best orders, then a little for the other measure.
  void refine(std::int64_t budget) {
    const std::vector<Found> starts = orders_;
    for (std::size_t i = 0; i < 4 && !at_bound(); ++i) improve_from(starts[i % starts.size()].order, budget / 4, false);
    if (!best().reaches(bound_)) improve_from(Order(orders_.front().order), budget / 8, true);
  }

 private:
  struct Found {
    Order order;
    Score score;
  };

  static Score bounds_of(Problem& problem) {
    Score bound;
    bound.objective = lower_bound(problem);
    const SearchObjective wanted = problem.objective;
    problem.objective = wanted == SearchObjective::makespan ? SearchObjective::span : SearchObjective::makespan;
    bound.other = lower_bound(problem);
    problem.objective = wanted;
    return bound;
  }

  bool at_bound() const { return best().objective <= bound_.objective * (1 + 2e-9); }

  void improve_from(const Order& order, std::int64_t budget, bool polish) {
    const std::int64_t actions = 3ll * problem_->stages * problem_->micro_batches;
    budget = std::min(budget, (2000 + 100 * actions) * actions);  // small problems need no more
    // Which temperature suits depends on how rugged the problem is (little memory: very): take turns.
    constexpr double kTemperatures[3] = {0.05, 0.15, 0.5};
    const double temperature = kTemperatures[seed_++ % 3];
    Improvement improvement = improve(*problem_, order, {budget, bound_, polish, temperature, seed_});
    keep({std::move(improvement.order), improvement.score});
  }

  void offer(Order order) {
    if (evaluator_->evaluate(order)) keep({std::move(order), evaluator_->score()});
  }

  void keep(Found found) {
    // Of orders with the same figures one is enough: starts should differ.
    const auto same = [&](const Found& other) {
      return !other.score.better_than(found.score) && !found.score.better_than(other.score);
    };
    if (std::any_of(orders_.begin(), orders_.end(), same)) return;
    const auto worse = std::find_if(orders_.begin(), orders_.end(),
                                    [&](const Found& other) { return found.score.better_than(other.score); });
    orders_.insert(worse, std::move(found));
    if (orders_.size() > kStarts) orders_.pop_back();
  }

  // Warm-up depths that some idle time up to a few F allows, least idle first; the first entry is "as many as fit".
  std::vector<std::vector<int>> warmups() const {
    std::vector<std::vector<int>> choices{{}};
    const auto& forward = problem_->duration[kForward];
    const double step = *std::max_element(forward.begin(), forward.end()) / 32;
    std::set<std::vector<int>> seen;
    for (int i = 0; i <= 64 && choices.size() <= 24; ++i) {
      std::vector<int> counts = warmup_counts(*problem_, bound() + i * step);
      if (!counts.empty() && seen.insert(counts).second) choices.push_back(std::move(counts));
    }
    return choices;
  }

  std::vector<Policy> policies() const {
    std::vector<Policy::Chunk> chunk_rules{Policy::Chunk::oldest_micro_batch};
    if (problem_->chunks > 1)
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
    for (const bool input_first : {false, true}) {
      Policy policy;
      policy.from_the_end = true;
      policy.input_first = input_first;
      add(policy);
    }
    const bool scarce = problem_->limit[0] < problem_->ranks;
    for (const std::vector<int>& warmup : warmups()) {
      for (const bool input_first : {false, true})
        for (const bool make_room : {false, true}) {
          Policy policy;
          policy.input_first = input_first;
          policy.make_room = make_room;
          policy.warmup = warmup;
          add(policy);
        }
      if (!warmup.empty() || !scarce) continue;
      for (const Timetable& block : building_blocks(*problem_, 150))
        for (const double gap : {0.0, 1.0}) {
          Policy policy;
          policy.least_gap = gap;
          policy.timetable = block;
          all.push_back(std::move(policy));
        }
    }
    return all;
  }

  std::unique_ptr<Problem> problem_;
  std::unique_ptr<Evaluator> evaluator_;
  Score bound_;
  std::uint64_t seed_ = 0;
  std::vector<Found> orders_;
};

std::string placement_name(const SearchCandidate& candidate) {
  if (candidate.placement == Placement::Kind::v_shape) return "V placement";
  if (candidate.placement == Placement::Kind::bidirectional) return "two parameter copies";
  return candidate.chunks == 1 ? "one stage per rank" : std::to_string(candidate.chunks) + " stages per rank";
}

std::string reason_of(const SearchRequest& request, const SearchCandidate& chosen, const SearchCandidate* best_named,
                      double bound) {
  const bool makespan = request.objective == SearchObjective::makespan;
  const auto measure = [&](const SearchCandidate& candidate) { return makespan ? candidate.makespan : candidate.span; };
  const auto bubble = [&](const SearchCandidate& candidate) {
    return makespan ? candidate.bubble : candidate.bubble_span;
  };
  const double gap = measure(chosen) / bound - 1;
  char end[160];
  if (gap < 1e-6)
    std::snprintf(end, sizeof end, "no schedule allowed here can be faster");
  else
    std::snprintf(end, sizeof end, "it is within %.2f%% of what no schedule allowed here can beat", 100 * gap);
  const std::string within = request.memory_limit.empty() ? "" : " within the memory limit";
  char text[400];
  if (chosen.name != "own order") {
    std::snprintf(text, sizeof text, "%s is the best%s, %s bubble %.4f: the search's own orders do not beat it; %s",
                  chosen.name.c_str(), within.c_str(), makespan ? "makespan" : "span", bubble(chosen), end);
  } else if (best_named != nullptr) {
    std::snprintf(text, sizeof text,
                  "its own order with %s has %s bubble %.4f, the best named schedule%s, %s, has %.4f; %s",
                  placement_name(chosen).c_str(), makespan ? "makespan" : "span", bubble(chosen), within.c_str(),
                  best_named->name.c_str(), bubble(*best_named), end);
  } else {
    std::snprintf(text, sizeof text,
                  "its own order with %s has %s bubble %.4f, and no named schedule fits the memory limit; %s",
                  placement_name(chosen).c_str(), makespan ? "makespan" : "span", bubble(chosen), end);
  }
  return text;
}

}  // namespace

SearchResult search_schedule(const SearchRequest& request) {
  check(request);
  const std::vector<NamedSchedule> named = named_schedules(request);
  std::vector<PlacementSearch> searches;
  for (const Placement& placement : allowed_placements(request)) searches.emplace_back(request, placement);
  if (searches.empty() && named.empty())
    throw std::invalid_argument(
        "auto schedule: no placement is left: the costs are given per virtual stage for another number "
        "of stages, or max_virtual_stages is below the number of ranks");

  SearchResult result;
  result.lower_bound = std::numeric_limits<double>::infinity();
  const NamedSchedule* best_named = nullptr;
  for (const NamedSchedule& entry : named) {
    result.candidates.push_back(entry.candidate);
    if (entry.schedule.placement.kind == Placement::Kind::bidirectional) {
      const Simulation& simulation = entry.simulation;
      const bool makespan = request.objective == SearchObjective::makespan;
      result.lower_bound = std::min(result.lower_bound, makespan ? simulation.lower_bound : simulation.ideal);
    }
    if (!entry.candidate.fits) continue;
    for (PlacementSearch& search : searches) search.offer(entry.schedule);
    if (best_named == nullptr ||
        score_of(entry.candidate, request.objective).better_than(score_of(best_named->candidate, request.objective)))
      best_named = &entry;
  }

  double reached = best_named == nullptr ? std::numeric_limits<double>::infinity()
                                         : score_of(best_named->candidate, request.objective).objective;
  const auto parts = static_cast<std::int64_t>(searches.size());
  for (PlacementSearch& search : searches) {
    result.lower_bound = std::min(result.lower_bound, search.bound());
    search.build(kGreedyBudget / parts);
    reached = std::min(reached, search.best().objective);
  }
  PlacementSearch* leader = nullptr;
  for (PlacementSearch& search : searches) {
    if (search.bound() < reached * (1 - 1e-9)) search.survey(kSurveyBudget / parts);
    reached = std::min(reached, search.best().objective);
    if (leader == nullptr || search.best().better_than(leader->best())) leader = &search;
  }
  if (leader != nullptr) leader->refine(kRefineBudget);

  SimulateOptions options;
  options.intervals = options.channels = false;
  options.weight_memory = request.weight_memory;
  const SearchCandidate* chosen = nullptr;
  if (best_named != nullptr) {
    result.schedule = best_named->schedule;
    result.name = "auto: " + best_named->candidate.name;
  }
  SearchCandidate best = best_named == nullptr ? SearchCandidate{} : best_named->candidate;
  for (const PlacementSearch& search : searches) {
    Schedule schedule = search.best_schedule();
    const Simulation simulation = simulate(schedule, request.costs, options);
    const SearchCandidate candidate = make_candidate("own order", schedule, simulation, request);
    result.candidates.push_back(candidate);
    if (!result.name.empty() && !score_of(candidate, request.objective).better_than(score_of(best, request.objective)))
      continue;
    best = candidate;
    result.schedule = std::move(schedule);
    result.name = "auto: own order, " + placement_name(candidate);
  }
  chosen = &best;
  result.schedule.name = "auto";
  options.intervals = options.channels = true;
  result.simulation = simulate(result.schedule, request.costs, options);
  result.reason =
      reason_of(request, *chosen, best_named == nullptr ? nullptr : &best_named->candidate, result.lower_bound);
  return result;
}

}  // namespace train_gpt
