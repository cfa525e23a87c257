// The schedule search: published figures, optimality on small problems, bounds, memory, refusals.
#include "pipeline/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <vector>

#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/check_schedule.h"

namespace train_gpt {
namespace {

constexpr double kRounding = 1e-9;

SimulateOptions options_of(const SearchRequest& request) {
  SimulateOptions options;
  options.weight_memory = request.weight_memory;
  return options;
}

double measure(const SearchRequest& request, const Simulation& simulation) {
  return request.objective == Objective::makespan ? simulation.makespan : simulation.span;
}

// Complete lists, backwards of a stage in micro-batch order, memory within the limit, bound not above the result.
void expect_sound(const SearchRequest& request, const SearchResult& result) {
  const Schedule& schedule = result.schedule;
  ASSERT_EQ(schedule.ranks, request.ranks);
  ASSERT_EQ(schedule.micro_batches, request.micro_batches);
  std::map<std::pair<char, int>, int> next;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Action& action : schedule.actions(rank)) {
      ASSERT_EQ(schedule.placement.stages[static_cast<std::size_t>(action.stage)].rank, rank);
      const int first = schedule.placement.stages[static_cast<std::size_t>(action.stage)].first_micro_batch;
      const auto expect_next = [&](char operation) {
        EXPECT_EQ(action.micro_batch, (first + next[{operation, action.stage}]++)) << to_string(action);
      };
      if (action.op == Op::forward) expect_next('F');
      if (action.op == Op::backward || action.op == Op::backward_input) expect_next('I');
      if (action.op == Op::backward || action.op == Op::backward_weight) expect_next('W');
    }
  }
  for (std::size_t stage = 0; stage < schedule.placement.stages.size(); ++stage) {
    const auto& entry = schedule.placement.stages[stage];
    for (const char operation : {'F', 'I', 'W'})
      EXPECT_EQ((next[{operation, static_cast<int>(stage)}]), entry.last_micro_batch - entry.first_micro_batch);
  }
  EXPECT_TRUE(check_schedule(schedule, request.costs).notices.empty());
  const Simulation simulation = simulate(schedule, request.costs, options_of(request));
  EXPECT_DOUBLE_EQ(simulation.makespan, result.simulation.makespan);
  EXPECT_DOUBLE_EQ(simulation.span, result.simulation.span);
  for (std::size_t rank = 0; rank < simulation.peak_live.size(); ++rank) {
    if (request.memory_limit.empty()) continue;
    EXPECT_LE(simulation.peak_live[rank],
              request.memory_limit[request.memory_limit.size() == 1 ? 0 : rank] + kRounding);
  }
  EXPECT_LE(result.lower_bound, measure(request, simulation) * (1 + kRounding));
  for (const SearchCandidate& candidate : result.candidates) {
    if (!candidate.fits) continue;
    const double rival = request.objective == Objective::makespan ? candidate.makespan : candidate.span;
    EXPECT_LE(measure(request, simulation), rival * (1 + kRounding)) << "loses to " << candidate.name;
  }
  EXPECT_EQ(result.name.rfind("auto: ", 0), 0u);
  EXPECT_FALSE(result.reason.empty());
}

SearchRequest one_stage_per_rank(int p, int m) {
  SearchRequest request;
  request.ranks = p;
  request.micro_batches = m;
  request.loop_chunks = {1};
  request.v_shape = false;
  return request;
}

// Zero Bubble (ICLR 2024): profiled milliseconds, memory for 2p micro-batches on every rank, bubble rates of its
// search.
struct PublishedRow {
  const char* model;
  int p, m;
  double forward, input, weight, hop;
  double weight_memory;
  double span_bubble;      // published, or what the authors' heuristic gives where everything is kept until W
  double makespan_bubble;  // of the authors' heuristic; 0: not known
};

const PublishedRow kPublished[] = {
    {"1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, 0.366, 0.0433, 0.1083},
    {"1.5B", 8, 64, 18.546, 18.097, 9.321, 0.762, 0.366, 0.0026, 0},
    {"6.2B", 8, 32, 29.802, 29.428, 19.530, 0.577, 0.444, 0.0022, 0},
    {"14.6B", 16, 48, 11.347, 11.248, 8.132, 0.377, 0.451, 0.0066, 0.1065},
    {"28.3B", 32, 96, 10.419, 10.207, 7.715, 0.408, 0.444, 0.0038, 0.1098},
    {"1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, 1, 0.1015, 0.1083},
    {"1.5B", 8, 32, 18.513, 18.086, 9.331, 0.626, 1, 0.0784, 0.0836},
    {"6.2B", 8, 24, 29.718, 29.444, 19.927, 0.527, 1, 0.0607, 0.1003},
    {"14.6B", 16, 48, 11.347, 11.248, 8.132, 0.377, 1, 0.0624, 0.1065},
    {"28.3B", 32, 96, 10.419, 10.207, 7.715, 0.408, 1, 0.0616, 0.1098},
};

SearchRequest request_of(const PublishedRow& row, Objective objective) {
  SearchRequest request = one_stage_per_rank(row.p, row.m);
  request.costs.forward = {row.forward};
  request.costs.input = {row.input};
  request.costs.weight = {row.weight};
  request.costs.latency = {row.hop};
  request.memory_limit = {2.0 * row.p};
  request.weight_memory = row.weight_memory;
  request.objective = objective;
  return request;
}

constexpr double kFourDecimals = 0.00005;  // half of the last printed one

TEST(Search, ReachesThePublishedSpanBubblesWithOneStagePerRank) {
  for (const PublishedRow& row : kPublished) {
    SCOPED_TRACE(std::string(row.model) + " m=" + std::to_string(row.m));
    const SearchRequest request = request_of(row, Objective::span);
    const SearchResult result = search_schedule(request);
    expect_sound(request, result);
    EXPECT_LE(result.simulation.bubble_span, row.span_bubble + kFourDecimals);
    // None of these problems is left with more than a thousandth between answer and proof.
    EXPECT_LE(result.simulation.span, result.lower_bound * 1.001);
  }
}

TEST(Search, ReachesThePublishedMakespanBubblesWithOneStagePerRank) {
  for (const PublishedRow& row : kPublished) {
    if (row.makespan_bubble == 0) continue;
    SCOPED_TRACE(std::string(row.model) + " m=" + std::to_string(row.m));
    const SearchRequest request = request_of(row, Objective::makespan);
    const SearchResult result = search_schedule(request);
    expect_sound(request, result);
    EXPECT_LE(result.simulation.bubble, row.makespan_bubble + kFourDecimals);
    EXPECT_LE(result.simulation.makespan, result.lower_bound * (1 + 1e-6));  // optimal
  }
}

TEST(Search, MoreStagesPerRankBeatThePublishedRates) {
  for (const PublishedRow& row : {kPublished[1], kPublished[5], kPublished[8]}) {
    SCOPED_TRACE(std::string(row.model) + " m=" + std::to_string(row.m));
    SearchRequest request = request_of(row, Objective::span);
    request.loop_chunks = {1, 2};
    request.v_shape = true;
    const SearchResult result = search_schedule(request);
    expect_sound(request, result);
    EXPECT_LT(result.simulation.bubble_span, row.span_bubble / 2);
  }
}

// Found by the authors' searches for F = I = W = 1, p = 4: makespan, span and the peak of every rank.
struct PublishedSearch {
  const char* family;
  int p, m;
  double makespan, span;
  std::vector<double> peak;
};

const PublishedSearch kPublishedSearches[] = {
    {"zb_auto_1p", 4, 1, 9, 9, {1, 1, 1, 1}},      {"zb_auto_1p", 4, 2, 11, 11, {2, 2, 2, 2}},
    {"zb_auto_1p", 4, 3, 13, 13, {3, 3, 3, 3}},    {"zb_auto_1p", 4, 4, 15, 15, {4, 4, 4, 4}},
    {"zb_auto_1p", 4, 6, 21, 21, {4, 4, 4, 4}},    {"zb_auto_1p", 4, 7, 24, 24, {4, 4, 4, 4}},
    {"zb_auto_1p", 4, 8, 27, 27, {4, 4, 4, 4}},    {"zb_auto_1p", 4, 16, 51, 51, {4, 4, 4, 4}},
    {"zb_auto_2p", 4, 1, 9, 9, {1, 1, 1, 1}},      {"zb_auto_2p", 4, 2, 11, 11, {2, 2, 2, 2}},
    {"zb_auto_2p", 4, 3, 13, 13, {3, 3, 3, 3}},    {"zb_auto_2p", 4, 4, 15, 15, {4, 4, 4, 4}},
    {"zb_auto_2p", 4, 6, 21, 19, {6, 6, 6, 6}},    {"zb_auto_2p", 4, 7, 24, 21, {7, 7, 7, 7}},
    {"zb_auto_2p", 4, 8, 27, 24, {8, 8, 8, 8}},    {"zb_auto_2p", 4, 16, 51, 48, {8, 8, 8, 8}},
    {"zb_zbv_auto", 4, 1, 8.5, 8.5, {1, 1, 1, 1}}, {"zb_zbv_auto", 4, 2, 9.5, 9.5, {2, 2, 2, 2}},
    {"zb_zbv_auto", 4, 3, 11.5, 11, {3, 3, 3, 3}}, {"zb_zbv_auto", 4, 4, 14, 13.5, {3.5, 4, 4, 4}},
    {"zb_zbv_auto", 4, 6, 20, 18.5, {4, 4, 4, 4}}, {"zb_zbv_auto", 4, 7, 22.5, 21, {4, 4, 4, 4}},
    {"zb_zbv_auto", 4, 8, 25.5, 24, {4, 4, 4, 4}}, {"zb_zbv_auto", 4, 16, 49.5, 48, {4, 4, 4, 4}},
};

TEST(Search, IsNoWorseThanTheAuthorsSearchesInMakespanSpanAndPeak) {
  for (const PublishedSearch& published : kPublishedSearches) {
    SCOPED_TRACE(std::string(published.family) + " m=" + std::to_string(published.m));
    SearchRequest request = one_stage_per_rank(published.p, published.m);
    if (published.family == std::string("zb_zbv_auto")) request.loop_chunks = {}, request.v_shape = true;
    request.memory_limit = published.peak;
    request.objective = Objective::span;
    const SearchResult result = search_schedule(request);
    expect_sound(request, result);
    EXPECT_LE(result.simulation.span, published.span + kRounding);
    EXPECT_LE(result.simulation.makespan, published.makespan + kRounding);  // the same list is no worse in both
    request.objective = Objective::makespan;
    EXPECT_LE(search_schedule(request).simulation.makespan, published.makespan + kRounding);
  }
}

// Every choice of one complete list per rank, one stage per rank, micro-batches in order.
class EveryOrder {
 public:
  explicit EveryOrder(const SearchRequest& request)
      : request_(request), schedule_(make_schedule({"1f1b", request.ranks, request.micro_batches, 1, 0})) {}

  double best() {
    best_ = 1e300;
    extend(0, 0, 0, 0);
    return best_;
  }

 private:
  void extend(int rank, int forwards, int inputs, int weights) {
    const int m = request_.micro_batches;
    if (rank == request_.ranks) return measure_it();
    if (forwards + inputs + weights == 0) schedule_.lists[static_cast<std::size_t>(rank)].clear();
    if (weights == m) {
      const auto saved = schedule_.lists[static_cast<std::size_t>(rank)];
      extend(rank + 1, 0, 0, 0);
      schedule_.lists[static_cast<std::size_t>(rank)] = saved;
      return;
    }
    const auto with = [&](Op op, int micro_batch, int f, int i, int w) {
      const double live = (f - i) + request_.weight_memory * (i - w);
      if (!request_.memory_limit.empty() && live > request_.memory_limit[0] + kRounding) return;
      schedule_.lists[static_cast<std::size_t>(rank)].push_back({op, false, rank, micro_batch});
      extend(rank, f, i, w);
      schedule_.lists[static_cast<std::size_t>(rank)].pop_back();
    };
    if (forwards < m) with(Op::forward, forwards, forwards + 1, inputs, weights);
    if (inputs < forwards) with(Op::backward_input, inputs, forwards, inputs + 1, weights);
    if (weights < inputs) with(Op::backward_weight, weights, forwards, inputs, weights + 1);
  }

  void measure_it() {
    SimulateOptions options;
    options.intervals = options.channels = false;
    try {
      best_ = std::min(best_, measure(request_, simulate(schedule_, request_.costs, options)));
    } catch (const std::invalid_argument&) {
      // These lists wait for each other.
    }
  }

  const SearchRequest& request_;
  Schedule schedule_;
  double best_ = 0;
};

// A small generator of our own: the same problems with every standard library.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t n) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state_ >> 33) % n;
  }
  double between(double low, double high) { return low + (high - low) * static_cast<double>(below(1001)) / 1000; }

 private:
  std::uint64_t state_;
};

std::vector<double> random_costs(Numbers& numbers, int p, double low, double high) {
  std::vector<double> costs;
  const int values = numbers.below(2) ? p : 1;
  for (int i = 0; i < values; ++i) costs.push_back(numbers.between(low, high));
  return costs;
}

TEST(Search, FindsTheOptimumOfSmallProblems) {
  constexpr int kSizes[][2] = {{2, 2}, {2, 3}, {3, 2}};
  Numbers numbers(1);
  int optimal = 0, problems = 0;
  for (int i = 0; i < 60; ++i) {
    const auto& size = kSizes[i % 3];
    SearchRequest request = one_stage_per_rank(size[0], size[1]);
    request.costs.forward = random_costs(numbers, size[0], 0.5, 2);
    request.costs.input = random_costs(numbers, size[0], 0.5, 2);
    request.costs.weight = random_costs(numbers, size[0], 0.2, 2);
    request.costs.latency = {numbers.below(2) ? numbers.between(0, 1.5) : 0};
    request.weight_memory = numbers.between(0, 1);
    if (numbers.below(3)) request.memory_limit = {numbers.between(1, size[1])};
    request.objective = numbers.below(2) ? Objective::span : Objective::makespan;
    const double best = EveryOrder(request).best();
    const SearchResult result = search_schedule(request);
    expect_sound(request, result);
    const double found = measure(request, result.simulation);
    EXPECT_GE(found, best * (1 - kRounding));
    EXPECT_LE(result.lower_bound, best * (1 + kRounding));
    ++problems;
    if (found <= best * (1 + kRounding)) ++optimal;
  }
  EXPECT_GE(optimal, problems * 95 / 100);
}

TEST(Search, NeverLosesToANamedScheduleInTheSameMemory) {
  Numbers numbers(2);
  for (int i = 0; i < 24; ++i) {
    SearchRequest request;
    request.ranks = 1 + static_cast<int>(numbers.below(6));
    request.micro_batches = 1 + static_cast<int>(numbers.below(14));
    request.costs.forward = random_costs(numbers, request.ranks, 0.5, 2);
    request.costs.input = random_costs(numbers, request.ranks, 0.5, 2);
    request.costs.weight = random_costs(numbers, request.ranks, 0.2, 2);
    request.costs.latency = {numbers.below(2) ? numbers.between(0, 2) : 0};
    request.weight_memory = numbers.between(0, 1);
    request.memory_limit = {numbers.between(1, 2.0 * request.ranks)};
    if (numbers.below(4) == 0) request.memory_limit.clear();
    request.objective = numbers.below(2) ? Objective::span : Objective::makespan;
    request.bidirectional = numbers.below(2) == 1;
    SCOPED_TRACE("p=" + std::to_string(request.ranks) + " m=" + std::to_string(request.micro_batches));
    const SearchResult result = search_schedule(request);
    expect_sound(request, result);  // compares with every candidate
    EXPECT_FALSE(result.candidates.empty());
  }
}

TEST(Search, EdgesOfTheDomain) {
  for (const int p : {1, 2, 3}) {
    for (const int m : {1, 2, 5}) {
      SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
      SearchRequest request;
      request.ranks = p;
      request.micro_batches = m;
      const SearchResult result = search_schedule(request);
      expect_sound(request, result);
      if (p == 1) {
        EXPECT_DOUBLE_EQ(result.simulation.makespan, 3.0 * m);
      }
      request.memory_limit = {1};  // the least there is: one micro-batch at a time
      const SearchResult tight = search_schedule(request);
      expect_sound(request, tight);
      EXPECT_LE(tight.simulation.peak_live[0], 1 + kRounding);
    }
  }
}

TEST(Search, AHeavyHeadAndLongHops) {
  SearchRequest request;
  request.ranks = 4;
  request.micro_batches = 12;
  request.costs.forward = {1, 1, 1, 2.5};
  request.costs.input = {1, 1, 1, 2.5};
  request.costs.weight = {1, 1, 1, 2.5};
  request.costs.latency = {0.8};
  request.memory_limit = {6};
  const SearchResult result = search_schedule(request);
  expect_sound(request, result);
  // The last rank's work and the way there and back of its first and last micro-batch leave next to no freedom.
  EXPECT_LE(result.simulation.makespan, result.lower_bound * 1.05);
}

TEST(Search, BandwidthIsSearchedWithAndReportedBySimulation) {
  SearchRequest request;
  request.ranks = 4;
  request.micro_batches = 8;
  request.costs.bandwidth = {1};
  request.costs.message_bytes = 0.4e6;  // 0.4 ms
  const SearchResult result = search_schedule(request);
  expect_sound(request, result);
  EXPECT_GT(result.simulation.bytes, 0);
}

TEST(Search, CostsPerVirtualStageFixTheNumberOfStages) {
  SearchRequest request;
  request.ranks = 2;
  request.micro_batches = 4;
  request.costs.forward = {1, 1, 1, 2};
  const SearchResult result = search_schedule(request);
  expect_sound(request, result);
  EXPECT_EQ(result.schedule.chunks, 2);
  request.max_virtual_stages = 3;
  EXPECT_THROW(search_schedule(request), std::invalid_argument);
}

TEST(Search, TheSameRequestGivesTheSameAnswer) {
  const SearchRequest request = request_of(kPublished[0], Objective::span);
  const SearchResult first = search_schedule(request), second = search_schedule(request);
  EXPECT_EQ(first.schedule.lists, second.schedule.lists);
  EXPECT_EQ(first.reason, second.reason);
}

TEST(Search, ALimitBeyondAllMicroBatchesIsNone) {
  const SearchRequest unlimited{.ranks = 2, .micro_batches = 4};
  SearchRequest limited = unlimited;
  limited.memory_limit = {1e15};
  EXPECT_EQ(search_schedule(limited).schedule.lists, search_schedule(unlimited).schedule.lists);
}

TEST(Search, RefusesWhatCannotRunAndNamesTheLeastLimit) {
  SearchRequest request = one_stage_per_rank(4, 8);
  request.memory_limit = {0.75};
  try {
    search_schedule(request);
    FAIL() << "a limit below one micro-batch was accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("0.75"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("is 1"), std::string::npos);
  }
  request.memory_limit = {2, 2};
  EXPECT_THROW(search_schedule(request), std::invalid_argument);
  request.memory_limit = {};
  request.weight_memory = 1.5;
  EXPECT_THROW(search_schedule(request), std::invalid_argument);
}

}  // namespace
}  // namespace train_gpt
