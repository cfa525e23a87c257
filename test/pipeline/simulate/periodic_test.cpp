// Long lists simulated by their turns, or phase by phase, beside all of their actions.
#include "pipeline/simulate/periodic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/phases.h"

namespace train_gpt {
namespace {

void expect_close(double by_turns, double plain, const std::string& what) {
  EXPECT_NEAR(by_turns, plain, 1e-9 * std::max(1.0, plain)) << what;
}

void expect_close(const std::vector<double>& by_turns, const std::vector<double>& plain, const std::string& what) {
  ASSERT_EQ(by_turns.size(), plain.size()) << what;
  for (std::size_t i = 0; i < plain.size(); ++i) expect_close(by_turns[i], plain[i], what + " " + std::to_string(i));
}

SimulateOptions without_intervals() {
  SimulateOptions options;
  options.intervals = false;
  options.weight_memory = 0.5;
  return options;
}

// Whether there is one; if so, that every figure is that of the plain simulation.
bool is_plain(const std::optional<Simulation>& found, const ScheduleRequest& request, const Costs& costs) {
  if (!found) return false;
  const SimulateOptions options = without_intervals();
  const Simulation plain = simulate(make_schedule(request), costs, options);
  const std::string name = request.name + " p " + std::to_string(request.ranks) + " v " +
                           std::to_string(request.chunks) + " m " + std::to_string(request.micro_batches) + ": ";
  expect_close(found->makespan, plain.makespan, name + "makespan");
  expect_close(found->span, plain.span, name + "span");
  expect_close(found->ideal, plain.ideal, name + "ideal");
  expect_close(found->bubble, plain.bubble, name + "bubble");
  expect_close(found->bubble_span, plain.bubble_span, name + "bubble_span");
  expect_close(found->lower_bound, plain.lower_bound, name + "lower_bound");
  expect_close(found->busy, plain.busy, name + "busy");
  expect_close(found->first_start, plain.first_start, name + "first_start");
  expect_close(found->last_end, plain.last_end, name + "last_end");
  expect_close(found->peak_live, plain.peak_live, name + "peak_live");
  expect_close(found->peak_pending_weight, plain.peak_pending_weight, name + "peak_pending_weight");
  expect_close(found->bytes, plain.bytes, name + "bytes");
  EXPECT_EQ(found->messages, plain.messages) << name;
  EXPECT_EQ(found->channels.size(), plain.channels.size()) << name;
  for (std::size_t i = 0; i < std::min(found->channels.size(), plain.channels.size()); ++i) {
    EXPECT_EQ(found->channels[i].messages, plain.channels[i].messages) << name << i;
    EXPECT_EQ(found->channels[i].longest_queue, plain.channels[i].longest_queue) << name << i;
    expect_close(found->channels[i].bytes, plain.channels[i].bytes, name + "channel bytes");
  }
  return true;
}

bool repeats(const ScheduleRequest& request, const Costs& costs) {
  return is_plain(simulate_by_turns(request, costs, without_intervals()), request, costs);
}

const char* const kRepeating[] = {"1f1b",   "interleaved", "zb-h1", "zb-h2",    "interleaved-zb", "zb-v",
                                  "1f1b-v", "v-half",      "v-min", "dualpipe", "dualpipev"};

TEST(Periodic, EveryScheduleThatRepeatsItselfIsTheSameByTurns) {
  for (const char* name : kRepeating)
    for (const int p : {2, 4, 6})
      for (const int m : {400, 402})
        EXPECT_TRUE(repeats({.name = name, .ranks = p, .micro_batches = m}, {})) << name << p;
}

TEST(Periodic, UnequalCostsLinksAndPairsAreTheSameByTurns) {
  Costs unequal;
  unequal.forward = {1.1, 0.9, 1.3, 1.0};
  unequal.input = {1.2, 1.4, 0.8, 1.1};
  unequal.weight = {0.7, 0.9, 1.0, 0.3};
  Costs linked = unequal;
  linked.latency = {0.05, 0.4, 0.1, 0.2};
  linked.bandwidth = {10, 5, 20, 2};
  linked.message_bytes = 1e6;
  Costs slowed = linked;
  slowed.send_slowdown = 0.2;
  Costs fused;
  fused.fused = {2.5};
  for (const char* name : kRepeating) {
    const ScheduleRequest request{.name = name, .ranks = 4, .micro_batches = 600};
    EXPECT_TRUE(repeats(request, unequal)) << name;
    EXPECT_TRUE(repeats(request, linked)) << name;
    repeats(request, slowed);  // times that depend on times settle slowly, or never
    EXPECT_TRUE(repeats(request, fused)) << name;
  }
}

// Rank 0 runs ahead of a slower rank 3 until its memory is full: that takes a while.
TEST(Periodic, WaitsUntilTheStateRepeats) {
  Costs costs;
  costs.forward = {1, 1, 1, 1.02};
  EXPECT_TRUE(repeats({.name = "zb-h2", .ranks = 4, .micro_batches = 3000}, costs));
}

TEST(Periodic, ListsThatGrowInTwoPlacesAreLeftToThePlainSimulation) {
  EXPECT_FALSE(repeats({.name = "gpipe", .ranks = 4, .micro_batches = 400}, {}));
  EXPECT_FALSE(repeats({.name = "breadth-first", .ranks = 4, .micro_batches = 400}, {}));
  EXPECT_FALSE(repeats({.name = "1f1b", .ranks = 4, .micro_batches = 30}, {}));
}

TEST(Phases, GpipeAndBreadthFirstAreTheSameWithoutLists) {
  Costs unequal;
  unequal.forward = {1.1, 0.9, 1.3, 1.0};
  unequal.input = {1.2, 1.4, 0, 1.1};
  unequal.weight = {0.7, 0.9, 1.0, 0.3};
  Costs links = unequal;
  links.latency = {0.1};
  links.bandwidth = {2};
  links.message_bytes = 3e6;  // 1.5 ms: messages wait for their channel
  Costs slowed = links;
  slowed.send_slowdown = 0.2;
  const auto in_phases = [](const ScheduleRequest& request, const Costs& costs) {
    return is_plain(simulate_in_phases(request, costs, without_intervals()), request, costs);
  };
  for (const Costs& costs : {Costs{}, unequal, links, slowed}) {
    EXPECT_TRUE(in_phases({.name = "gpipe", .ranks = 4, .micro_batches = 1001}, costs));
    for (const int v : {2, 3})
      EXPECT_TRUE(in_phases({.name = "breadth-first", .ranks = 4, .micro_batches = 1000, .chunks = v}, costs)) << v;
  }
  EXPECT_TRUE(in_phases({.name = "gpipe", .ranks = 1, .micro_batches = 1000}, {}));
  EXPECT_TRUE(in_phases({.name = "breadth-first", .ranks = 1, .micro_batches = 1000, .chunks = 2}, {}));
  EXPECT_FALSE(in_phases({.name = "1f1b", .ranks = 4, .micro_batches = 1000}, {}));
}

}  // namespace
}  // namespace train_gpt
