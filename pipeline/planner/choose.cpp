#include "pipeline/planner/choose.h"
#include "pipeline/plan/plan_bytes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "pipeline/planner/choose_schedule.h"
#include "pipeline/planner/partition_search.h"
#include "pipeline/planner/recompute.h"
#include "pipeline/planner/spread_cuts.h"
#include "pipeline/planner/step_timer.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {
namespace {

// Replaces the milliseconds of a plan that does not fit, times the excess over the limit: so local moves lead back to
// plans that fit.
constexpr double kDoesNotFit = 1e15;
// The same for each unit that --recompute names and its stage does not have.
constexpr double kDoesNotSuit = 1e21;
// A head that keeps its logits must be worth their memory.
constexpr double kWorthMemory = 0.98;

// How full the fullest rank is, of its limit.
double fullness(const Plan& plan, const ChoiceRequest& request) {
  double most = 0;
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    most = std::max(most, static_cast<double>(plan.ranks[r].total_bytes()) / static_cast<double>(request.limit_of(r)));
  }
  return most;
}

// Everything about one schedule and one form of the head, as a function of the partition.
class Candidates {
 public:
  Candidates(const ChoiceRequest& request, const Schedule& schedule, HeadForm head)
      : request_(request), plan_request_(request.base), head_(head), step_ms_(schedule) {
    plan_request_.schedule = schedule;
    plan_request_.head = head;
    plan_request_.memory_limit = request.memory_limit;
  }

  // Milliseconds of a step; kDoesNotFit or more if a rank does not fit.
  double makespan(const Partition& partition) {
    if (request_.recompute == ChoiceRequest::Recompute::list) {
      const int missing = missing_units(request_.recompute_counts, plan_request_.model, partition, head_);
      if (missing > 0) return kDoesNotSuit * missing;
    }
    if (prepare(partition)) return step_ms_(costs(false));
    return kDoesNotFit * fullness(make_plan(plan_request_), request_);
  }

  Choice choice(const Partition& partition) {
    Choice choice;
    choice.fits = prepare(partition);
    choice.costs = costs(true);
    choice.predicted = simulate_step(plan_request_.schedule, choice.costs, {});
    set_plan_costs(choice.costs);
    choice.plan = make_plan(plan_request_);
    return choice;
  }

  // Bytes by which each unit fills a rank, calibrated with the plan of `partition`.
  void add_memory_limits(CutProblem& problem, const Partition& partition);

 private:
  // Fills in what follows from a partition; false if a rank does not fit.
  bool prepare(const Partition& partition) {
    plan_request_.partition = partition;
    plan_request_.recompute.clear();
    if (request_.recompute == ChoiceRequest::Recompute::list) {
      plan_request_.recompute = recompute_list(request_.recompute_counts, plan_request_.model, partition, head_);
    }
    if (request_.memory_limit <= 0) return true;
    if (fullness(make_plan(plan_request_), request_) <= 1) return true;
    if (request_.recompute != ChoiceRequest::Recompute::automatic) return false;
    std::vector<std::int64_t> limits;
    for (std::size_t r = 0; r < plan_request_.schedule.lists.size(); ++r) limits.push_back(request_.limit_of(r));
    const auto units = recompute_to_fit(plan_request_, limits);
    if (units) plan_request_.recompute = *units;
    return units.has_value();
  }

  // `bytes`: those of messages are wanted, although no link has a bandwidth.
  StageCosts costs(bool bytes) const {
    const Placement& placement = plan_request_.schedule.placement;
    const CostModel& model = request_.costs;
    if (model.given) {
      Costs given = *model.given;
      given.messages = message_sizes(plan_request_);
      return stage_costs(given, placement);
    }
    StageCosts costs =
        stage_costs(model.units, head_, placement, plan_request_.partition, model.slowness, plan_request_.recompute);
    Costs links = model.links;
    if (bytes || !links.bandwidth.empty()) links.messages = message_sizes(plan_request_);
    set_hops(costs, links, placement);
    return costs;
  }

  // The plan counts its message slots with these; one value per model stage says it for bidirectional placements.
  void set_plan_costs(const StageCosts& costs) {
    const auto depth = static_cast<std::size_t>(plan_request_.schedule.placement.depth());
    plan_request_.costs.forward.assign(costs.forward.begin(),
                                       costs.forward.begin() + static_cast<std::ptrdiff_t>(depth));
    plan_request_.costs.input.assign(costs.input.begin(), costs.input.begin() + static_cast<std::ptrdiff_t>(depth));
    plan_request_.costs.weight.assign(costs.weight.begin(), costs.weight.begin() + static_cast<std::ptrdiff_t>(depth));
    plan_request_.costs.latency = (request_.costs.given ? *request_.costs.given : request_.costs.links).latency;
  }

  const ChoiceRequest& request_;
  PlanRequest plan_request_;
  HeadForm head_;
  StepTimer step_ms_;  // of the caller's schedule
};

// Whether and how long the cut is refined by simulated steps, see refine_partition(). once: until no single move helps.
enum class Refine : std::uint8_t { no, once, yes, thoroughly };

// Simulated steps are paid for by the action. Under a memory limit each one takes a whole plan besides.
int refinement_budget(const ChoiceRequest& request, const Schedule& schedule, Refine refine) {
  const bool planned = request.memory_limit > 0, thoroughly = refine == Refine::thoroughly && !planned;
  const std::size_t affordable = planned ? 6'000'000 : thoroughly ? 100'000'000 : 30'000'000;
  std::size_t actions = 1;
  for (const std::vector<Action>& list : schedule.lists) actions += list.size();
  return static_cast<int>(std::clamp<std::size_t>(affordable / actions, 20, thoroughly ? 60'000 : 4000));
}

CutProblem cut_problem(const ChoiceRequest& request, const Placement& placement) {
  CutProblem problem;
  problem.placement = placement;
  problem.slowness = request.costs.slowness;
  const UnitCosts& units = request.costs.units;
  for (std::size_t u = 0; u < units.forward.size(); ++u) problem.unit_ms.push_back(units.total(u));
  return problem;
}

void Candidates::add_memory_limits(CutProblem& problem, const Partition& partition) {
  PlanRequest request = plan_request_;
  request.partition = partition;
  const Plan plan = make_plan(request);
  const UnitMemory memory = unit_memory(request);
  problem.unit_bytes = memory.bytes;
  problem.limit_bytes.assign(plan.ranks.size(), 0.0);
  // Memory that is not counted by unit comes from the plan, since it changes little with the cut.
  const std::vector<double> counted = counted_bytes(request, memory);
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const double other = static_cast<double>(plan.ranks[r].total_bytes()) - counted[r];
    problem.limit_bytes[r] = static_cast<double>(request_.limit_of(r)) - other;
  }
}

// Cuts that need no schedule and no memory: they follow from the placement alone, and take long to find.
struct CutsOfPlacement {
  std::optional<Cut> fastest;
  std::vector<Partition> spread;  // see spread_cuts.h
};
using KnownCuts = std::map<std::pair<Placement::Kind, int>, CutsOfPlacement>;

SpreadProblem spread_problem(const ChoiceRequest& request, const CutProblem& problem) {
  const UnitCosts& units = request.costs.units;
  return {problem, units.forward, units.first_head, request.base.batch.micro_batches};
}

const CutsOfPlacement& cuts_of(const ChoiceRequest& request, const CutProblem& problem, KnownCuts& known) {
  constexpr std::size_t kSpreadCuts = 3;
  const auto [entry, fresh] = known.try_emplace({problem.placement.kind, problem.placement.chunks});
  if (!fresh) return entry->second;
  entry->second.fastest = fastest_cut(problem);
  entry->second.spread = spread_cuts(spread_problem(request, problem), kSpreadCuts);
  return entry->second;
}

// Uniform, as listed, or the best of these, refined: the cut whose slowest rank is fastest, the one into stages of
// equal time, the one of spread_cuts.h, and the uniform one.
Choice choose_cut(const ChoiceRequest& request, const Schedule& schedule, HeadForm head, Refine refine,
                  KnownCuts& cuts) {
  Candidates candidates(request, schedule, head);
  const ModelConfig& model = request.base.model;
  const int depth = schedule.placement.depth();
  const Partition uniform = uniform_partition(model, depth);
  if (request.cut == ChoiceRequest::Cut::list) {
    check_partition(request.partition, model, depth);
    return candidates.choice(request.partition);
  }
  const bool units_decide = !request.costs.given && depth > 1 && depth < unit_count(model);
  if (request.cut == ChoiceRequest::Cut::uniform || !units_decide) return candidates.choice(uniform);

  const double uniform_makespan = candidates.makespan(uniform);
  CutProblem problem = cut_problem(request, schedule.placement);
  std::vector<Partition> starts = {uniform, even_cut(problem.unit_ms, depth)};
  const CutsOfPlacement& placed = cuts_of(request, problem, cuts);
  if (placed.fastest) starts.push_back(placed.fastest->partition);
  if (!placed.spread.empty()) starts.push_back(placed.spread.front());
  if (static_cast<int>(request.partition.size()) == depth) starts.push_back(request.partition);
  if (request.memory_limit > 0) {
    candidates.add_memory_limits(problem, uniform);
    if (const auto cut = fastest_cut(problem)) starts.push_back(cut->partition);
  }
  const auto cost = [&](const Partition& partition) { return candidates.makespan(partition); };
  const int budget = refinement_budget(request, schedule, refine) / static_cast<int>(starts.size());
  Partition best = uniform;
  double best_makespan = uniform_makespan;
  for (const Partition& start : starts) {
    const Partition refined =
        refine == Refine::no ? start : refine_partition(start, cost, budget, refine == Refine::once);
    const double makespan = cost(refined);
    if (makespan >= best_makespan) continue;
    best = refined;
    best_makespan = makespan;
  }
  Choice choice = candidates.choice(best);
  if (uniform_makespan < kDoesNotFit) choice.uniform_makespan = uniform_makespan;
  return choice;
}

bool better(const Choice& a, const Choice& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return largest_rank(a.plan) < largest_rank(b.plan);
  return a.predicted.makespan < b.predicted.makespan;
}

// The cut and the form of the head for one schedule.
Choice choose_for_schedule(const ChoiceRequest& request, const Schedule& schedule, KnownCuts& cuts,
                           Refine refine = Refine::yes) {
  const bool free = !request.head && !request.costs.given && request.base.training;
  if (!free) return choose_cut(request, schedule, request.head.value_or(HeadForm::streamed), refine, cuts);
  Choice streamed = choose_cut(request, schedule, HeadForm::streamed, refine, cuts);
  if (head_text(streamed.plan) != "streamed") return streamed;  // no stage has the whole head: there is one form
  Choice stored = choose_cut(request, schedule, HeadForm::stored, refine, cuts);
  const bool too_large = request.device_bytes > 0 && largest_rank(stored.plan) > request.device_bytes;
  const bool shorter = stored.predicted.makespan < kWorthMemory * streamed.predicted.makespan;
  const bool worth_it = streamed.fits ? stored.fits && shorter && !too_large : better(stored, streamed);
  return worth_it ? stored : streamed;
}

bool same_placement(const Choice& a, const Choice& b) {
  const Placement& left = a.plan.request.schedule.placement;
  const Placement& right = b.plan.request.schedule.placement;
  return left.kind == right.kind && left.chunks == right.chunks;
}

std::string named_reason(const Choice& best, std::size_t compared, bool searched) {
  const Schedule& schedule = best.plan.request.schedule;
  std::string text = "auto: " + schedule.name;
  if (schedule.chunks > 1) text += " with " + std::to_string(schedule.chunks) + " stages per rank";
  text += " has the shortest simulated step of " + std::to_string(compared) + " schedules that are legal here";
  if (!best.fits) return text + "; none fits the memory limit, it comes closest";
  return text + (searched ? ", and the search's own orders do not beat it" : "");
}

// The named schedules, best first. Cuts take long to refine: that is done for those which are near the best without it.
std::vector<Choice> named_choices(const ChoiceRequest& request, KnownCuts& cuts) {
  constexpr double kNear = 1.1;
  std::vector<Choice> all;
  for (const Schedule& schedule : named_candidates(request))
    all.push_back(choose_for_schedule(request, schedule, cuts, Refine::no));
  const Choice& first = *std::min_element(all.begin(), all.end(), better);
  const bool fits = first.fits;
  const double makespan = kNear * first.predicted.makespan;
  const double bytes = kNear * static_cast<double>(largest_rank(first.plan));
  for (Choice& choice : all) {
    const bool near = fits ? choice.fits && choice.predicted.makespan <= makespan
                           : static_cast<double>(largest_rank(choice.plan)) <= bytes;
    if (near) choice = choose_for_schedule(request, Schedule(choice.plan.request.schedule), cuts, Refine::once);
  }
  std::stable_sort(all.begin(), all.end(), better);
  return all;
}

// Where the search for orders starts: a placement and a cut. The cut that suits a named schedule makes up for the gaps
// of that schedule's lists, which other orders do not have; they want ranks that all have as much to do.
struct SearchStart {
  Choice choice;
  double promise = 0;  // milliseconds of what is known for it: its named schedule, or an order by plain rules
};

std::vector<Partition> cuts_to_search(const ChoiceRequest& request, const Choice& named, double best, KnownCuts& cuts) {
  const Schedule& schedule = named.plan.request.schedule;
  const auto known = cuts.find({schedule.placement.kind, schedule.placement.chunks});
  if (known == cuts.end()) return {};
  std::vector<Partition> partitions = known->second.spread;
  if (known->second.fastest) partitions.push_back(known->second.fastest->partition);
  const CutProblem problem = cut_problem(request, schedule.placement);
  const SpreadProblem spread = spread_problem(request, problem);
  std::erase_if(partitions, [&](const Partition& partition) {
    return partition == named.plan.request.partition || least_step(spread, partition) >= best;
  });
  return partitions;
}

// The most promising first.
std::vector<SearchStart> starts_for_search(const ChoiceRequest& request, const std::vector<Choice>& named,
                                           KnownCuts& cuts) {
  std::vector<SearchStart> starts;
  const auto add = [&](Choice choice) {
    double promise = choice.fits ? choice.predicted.makespan : kDoesNotFit;
    if (const std::optional<double> ms = makespan_by_rules(request, choice)) promise = std::min(promise, *ms);
    starts.push_back({std::move(choice), promise});
  };
  for (std::size_t i = 0; i < named.size(); ++i) {
    const Choice& choice = named[i];
    if (std::any_of(named.begin(), named.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const Choice& other) { return same_placement(choice, other); }))
      continue;
    add(choice);
    for (const Partition& partition : cuts_to_search(request, choice, named.front().predicted.makespan, cuts)) {
      ChoiceRequest listed = request;
      listed.cut = ChoiceRequest::Cut::list;
      listed.partition = partition;
      Choice other = choose_for_schedule(listed, choice.plan.request.schedule, cuts);
      if (other.fits) add(std::move(other));
    }
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const SearchStart& a, const SearchStart& b) { return a.promise < b.promise; });
  // With long lists one search takes seconds.
  constexpr std::size_t kSearches = 3;
  if (starts.size() > kSearches) starts.resize(kSearches);
  return starts;
}

}  // namespace

Choice choose(const ChoiceRequest& request) {
  KnownCuts cuts;
  if (request.schedule) return choose_for_schedule(request, *request.schedule, cuts, Refine::thoroughly);
  const std::vector<Choice> named = named_choices(request, cuts);
  Choice best = named.front();
  if (request.search_beyond_names)
    best = choose_for_schedule(request, Schedule(best.plan.request.schedule), cuts, Refine::thoroughly);
  best.schedule_reason = named_reason(best, named.size(), request.search_beyond_names);
  if (!request.search_beyond_names) return best;
  for (const SearchStart& start : starts_for_search(request, named, cuts)) {
    constexpr double kNear = 1.02;
    const std::optional<FoundSchedule> found = search_like(request, start.choice);
    // A better cut makes up for little.
    if (!found || (start.choice.fits && best.fits && found->makespan > kNear * best.predicted.makespan)) continue;
    ChoiceRequest around = request;
    around.partition = start.choice.plan.request.partition;
    Choice own = choose_for_schedule(around, found->schedule, cuts);
    own.schedule_reason = found->reason;
    if (own.fits && own.predicted.makespan < best.predicted.makespan * (1 - 1e-9)) best = std::move(own);
  }
  return best;
}

CostModel cost_model(const Profile& profile, const ModelConfig& model, int p, const std::string& source) {
  CostModel costs;
  costs.units = unit_costs(profile, model);
  costs.slowness = rank_slowness(profile, p);
  costs.links.latency = {message_latency(profile)};
  const double bandwidth = message_bandwidth(profile);
  if (bandwidth > 0) costs.links.bandwidth = {bandwidth};
  if (profile.ranks.size() == static_cast<std::size_t>(p) && links_differ(profile)) {
    costs.links.latency.clear();
    costs.links.bandwidth.clear();
    for (const LinkTime& link : profile.links) {
      costs.links.latency.push_back(link.latency);
      // If one link's messages are too short to tell, the value of all links.
      if (bandwidth > 0) costs.links.bandwidth.push_back(link.bandwidth > 0 ? link.bandwidth : bandwidth);
    }
  }
  costs.source = source;
  return costs;
}

CostModel estimated_cost_model(const ModelConfig& model, std::int64_t seq_len, int p) {
  CostModel costs;
  costs.units = estimated_unit_costs(model, seq_len, p);
  costs.source = "estimated from operation counts, F of an average rank = 1 ms";
  return costs;
}

CostModel given_cost_model(const Costs& given, const ModelConfig& model, std::int64_t seq_len, int p) {
  CostModel costs = estimated_cost_model(model, seq_len, p);
  costs.links = given;
  costs.given = given;
  costs.source = "given by --cost-*, whatever the cut";
  return costs;
}

}  // namespace train_gpt
