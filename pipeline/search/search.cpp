#include "pipeline/search/search.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>

#include "pipeline/search/named.h"
#include "pipeline/search/own_orders.h"
#include "pipeline/search/placement_search.h"
#include "pipeline/search/problem.h"

namespace train_gpt {
namespace {

using namespace search;

void check(const SearchRequest& request) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("auto schedule: " + what); };
  if (request.ranks < 1) refuse("stages is " + std::to_string(request.ranks) + "; it must be at least 1");
  if (request.micro_batches < 1)
    refuse("micro-batches is " + std::to_string(request.micro_batches) + "; it must be at least 1");
  if (!(request.weight_memory >= 0 && request.weight_memory <= 1))
    refuse("weight-memory is " + std::to_string(request.weight_memory) + "; it must lie in 0 .. 1");
  for (const int chunks : request.loop_chunks)
    if (chunks < 1 || chunks > kMostSearchedChunks)
      refuse("chunks is " + std::to_string(chunks) + "; it must lie in 1 .. " + std::to_string(kMostSearchedChunks));
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

// Objective, for the span the makespan, memory, messages.
bool better(const SearchCandidate& a, const SearchCandidate& b, Objective objective) {
  const auto score = [&](const SearchCandidate& it) {
    return objective == Objective::makespan ? Score{it.makespan, 0, it.peak_live}
                                            : Score{it.span, it.makespan, it.peak_live};
  };
  if (score(a).better_than(score(b))) return true;
  return !score(b).better_than(score(a)) && a.messages < b.messages;
}

std::string placement_name(Placement::Kind kind, int chunks) {
  if (kind == Placement::Kind::v_shape) return "V placement";
  if (kind == Placement::Kind::bidirectional) return "two parameter copies";
  return chunks == 1 ? "one stage per rank" : std::to_string(chunks) + " stages per rank";
}
std::string placement_name(const Placement& placement) { return placement_name(placement.kind, placement.chunks); }
std::string placement_name(const SearchCandidate& candidate) {
  return placement_name(candidate.placement, candidate.chunks);
}

std::string reason_of(const SearchRequest& request, const SearchCandidate& chosen, const SearchCandidate* best_named,
                      double bound) {
  const bool makespan = request.objective == Objective::makespan;
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

std::string searched_set(const SearchRequest& request, const std::vector<Placement>& placements) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (const Placement& placement : placements)
    add(placement.kind == Placement::Kind::v_shape ? "a V" : "loops of " + std::to_string(placement.chunks));
  if (request.bidirectional && request.ranks % 2 == 0) add("two parameter copies (dualpipe alone)");
  return "searched: " + text + "; groups of p, 2p, 4p and m micro-batches" +
         (request.costs.fused.empty() ? "" : "; F and B in pairs or apart");
}

// The search, step by step: what it has so far is kept where a stop can pick it up.
class Search {
 public:
  explicit Search(const SearchRequest& request)
      : request_(request), work_([this] { return go_on(); }), placements_(allowed_placements(request)) {}

  SearchResult operator()() {
    for (const Placement& placement : placements_)
      searches_.push_back(std::make_unique<PlacementSearch>(request_, placement, work_, searches_));
    std::stable_sort(searches_.begin(), searches_.end(),
                     [](const auto& a, const auto& b) { return a->bound() < b->bound(); });
    result_.lower_bound = searches_.empty() ? std::numeric_limits<double>::infinity() : searches_.front()->bound();
    doing_ = "named schedules";
    named_ = named_schedules(request_, work_);
    if (searches_.empty() && named_.empty())
      throw std::invalid_argument(
          "auto schedule: no placement is left: the costs are given per virtual stage for another number "
          "of stages, or there are fewer units than ranks");
    look_at_named();
    for (const auto& search : searches_) look_for_own(*search);
    return finish();
  }

 private:
  double objective(const SearchCandidate& candidate) const {
    return request_.objective == Objective::makespan ? candidate.makespan : candidate.span;
  }

  bool go_on() const {
    return !request_.progress || request_.progress({best_ ? objective(*best_) : 0, result_.lower_bound, doing_});
  }

  void look_at_named() {
    for (const NamedSchedule& entry : named_) {
      result_.candidates.push_back(entry.candidate);
      if (entry.candidate.placement == Placement::Kind::bidirectional)
        result_.lower_bound = std::min(result_.lower_bound, entry.bound);
      if (!entry.candidate.fits) continue;
      if (!best_named_ || better(entry.candidate, *best_named_, request_.objective)) {
        best_named_ = entry.candidate;
        named_request_ = entry.request;
      }
    }
    best_ = best_named_;
  }

  // Ties are worth a look, too: they may take less memory. Where lists are long, the named schedules at the bound are
  // as good as any; where they are so long that a single order takes a second, so are those within a per cent of it.
  double worth_a_look(const Placement& placement) const {
    constexpr std::int64_t kLong = 100'000, kVast = 4'000'000;
    const std::int64_t actions = 3ll * placement.depth() * request_.micro_batches;
    return actions > kVast ? 0.99 : actions > kLong ? 1 - 3e-9 : 1 + 1e-9;
  }

  void look_for_own(PlacementSearch& search) {
    if (best_ && (work_.stopped() || search.bound() > objective(*best_) * worth_a_look(search.placement()))) return;
    doing_ = placement_name(search.placement());
    search.solve();
    Schedule schedule = search.best_schedule();
    SimulateOptions options;
    options.intervals = options.channels = false;
    options.weight_memory = request_.weight_memory;
    const SearchCandidate candidate =
        make_candidate("own order", schedule.placement, simulate(schedule, request_.costs, options), request_);
    result_.candidates.push_back(candidate);
    if (best_ && !better(candidate, *best_, request_.objective)) return;
    best_ = candidate;
    own_ = std::move(schedule);
  }

  SearchResult finish() {
    if (own_) {
      result_.schedule = std::move(*own_);
      result_.name = "auto: own order, " + placement_name(result_.schedule.placement);
    } else {
      result_.schedule = make_schedule(named_request_);
      result_.name = "auto: " + best_->name;
    }
    result_.schedule.name = "auto";
    SimulateOptions options;
    options.intervals = options.channels = false;
    options.weight_memory = request_.weight_memory;
    result_.simulation = simulate(result_.schedule, request_.costs, options);
    result_.reason = reason_of(request_, *best_, best_named_ ? &*best_named_ : nullptr, result_.lower_bound);
    result_.searched = searched_set(request_, placements_);
    result_.stopped = work_.stopped();
    return std::move(result_);
  }

  const SearchRequest& request_;
  Work work_;
  std::vector<Placement> placements_;
  PlacementSearch::Siblings searches_;
  std::vector<NamedSchedule> named_;
  std::string doing_;
  std::optional<SearchCandidate> best_, best_named_;
  ScheduleRequest named_request_;
  std::optional<Schedule> own_;
  SearchResult result_;
};

}  // namespace

SearchResult search_schedule(const SearchRequest& request) {
  check(request);
  return Search(request)();
}

std::optional<OrderByRules> order_by_rules(const SearchRequest& request) {
  check(request);
  const std::vector<Placement> placements = allowed_placements(request);
  if (placements.empty()) return std::nullopt;
  const Problem problem = make_problem(request, placements.front());
  Work work(nullptr);
  Pool pool(problem, work);
  build_orders(problem, Policies::few, pool, work);
  if (pool.empty()) return std::nullopt;
  OrderByRules found{to_schedule(problem, pool.best().order), pool.best().score.objective};
  found.schedule.name = "auto";
  return found;
}

}  // namespace train_gpt
