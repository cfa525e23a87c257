// The simulator and the schedules against figures that were published, or derived from published schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pipeline/schedule_catalog.h"
#include "pipeline/simulate.h"

namespace train_gpt {
namespace {

double peak(const Simulation& simulation) {
  return *std::max_element(simulation.peak_live.begin(), simulation.peak_live.end());
}

Costs costs_of(double forward, double input, double weight, double latency = 0.0) {
  return {.forward = {forward}, .input = {input}, .weight = {weight}, .latency = latency};
}

// Makespan, bubble and largest number of live activations for F = I = W = 1 and free communication.
struct PublishedCase {
  const char* name;
  int chunks;
  struct {
    double makespan, bubble, peak;
    bool no_span_bubble;
  } p4_m8, p8_m32;
};

TEST(SimulatePublished, EqualCosts) {
  const std::vector<PublishedCase> cases = {
      {"gpipe", 1, {33, .2727, 8, false}, {117, .1795, 32, false}},
      {"1f1b", 1, {33, .2727, 4, false}, {117, .1795, 8, false}},
      {"interleaved", 2, {28.5, .1579, 5.5, false}, {106.5, .0986, 11.5, false}},
      {"interleaved", 4, {26.25, .0857, 4.75, false}, {101.25, .0519, 9.75, false}},
      {"breadth-first", 2, {28.5, .1579, 8, false}, {106.5, .0986, 32, false}},
      {"zb-h1", 1, {27, .1111, 4, false}, {103, .0680, 8, false}},
      {"interleaved-zb", 2, {25.5, .0588, 4, false}, {99.5, .0352, 8, false}},
      {"zb-h2", 1, {27, .1111, 7, true}, {103, .0680, 15, true}},
      {"zb-v", 2, {25.5, .0588, 4, true}, {99.5, .0352, 8, true}},
      {"dualpipe", 1, {25, .0400, 5, false}, {99, .0303, 9, false}},
      {"dualpipev", 2, {25.5, .0588, 4.5, false}, {99.5, .0352, 8.5, false}},
  };
  for (const PublishedCase& it : cases) {
    for (const bool large : {false, true}) {
      SCOPED_TRACE(std::string(it.name) + " v=" + std::to_string(it.chunks) + (large ? " p8 m32" : " p4 m8"));
      const auto& expected = large ? it.p8_m32 : it.p4_m8;
      const Simulation simulation =
          simulate(make_schedule(
                       {.name = it.name, .ranks = large ? 8 : 4, .micro_batches = large ? 32 : 8, .chunks = it.chunks}),
                   Costs{});
      EXPECT_DOUBLE_EQ(simulation.makespan, expected.makespan);
      EXPECT_NEAR(simulation.bubble, expected.bubble, 0.00005);
      EXPECT_DOUBLE_EQ(peak(simulation), expected.peak);
      if (expected.no_span_bubble) {
        EXPECT_DOUBLE_EQ(simulation.bubble_span, 0.0);
      }
      EXPECT_LE(simulation.lower_bound, simulation.makespan);
    }
  }
}

TEST(SimulatePublished, BackwardTwiceAsLongAsForward) {
  for (const auto& [p, m, bubble] : {std::tuple{4, 8, 0.2727}, std::tuple{8, 32, 0.1795}}) {
    for (const char* name : {"gpipe", "1f1b"}) {
      const Simulation simulation =
          simulate(make_schedule({.name = name, .ranks = p, .micro_batches = m}), costs_of(1.0, 1.0, 1.0));
      EXPECT_NEAR(simulation.bubble, bubble, 0.00005) << name;
      EXPECT_EQ(simulation.peak_live[0], std::string(name) == "gpipe" ? m : p);
    }
  }
}

// Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024): profiled times in ms, bubble rates in the span measure.
TEST(SimulatePublished, ZeroBubblePaper) {
  struct {
    int p, m;
    double forward, input, weight, latency, one_f_one_b, zb_h1, zb_h2;
  } const rows[] = {
      {8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585, 0.1083},
      {8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0674, 0.0444},
      {8, 32, 29.802, 29.428, 19.530, 0.577, 0.1898, 0.1045, 0.0559},
      {16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1397, 0.0672},
      {32, 96, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1421, 0.0641},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE("p=" + std::to_string(row.p) + " m=" + std::to_string(row.m));
    const Costs costs = costs_of(row.forward, row.input, row.weight, row.latency);
    const auto bubble_span = [&](const char* name) {
      return simulate(make_schedule({.name = name, .ranks = row.p, .micro_batches = row.m}), costs).bubble_span;
    };
    EXPECT_NEAR(bubble_span("1f1b"), row.one_f_one_b, 0.00005);
    EXPECT_NEAR(bubble_span("zb-h1"), row.zb_h1, 0.00005);
    EXPECT_NEAR(bubble_span("zb-h2"), row.zb_h2, 0.00005);
  }
}

TEST(SimulatePublished, HopLatency) {
  const auto makespan = [](const ScheduleRequest& request, double latency) {
    return simulate(make_schedule(request), costs_of(1.0, 1.0, 1.0, latency)).makespan;
  };
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {p, 2 * p, 4 * p}) {
      const double latency = 0.01;
      // GPipe pays one round trip, 1F1B one for every p micro-batches.
      EXPECT_NEAR(makespan({.name = "gpipe", .ranks = p, .micro_batches = m}, latency),
                  3.0 * (m + p - 1) + 2.0 * (p - 1) * latency, 1e-9);
      EXPECT_NEAR(makespan({.name = "1f1b", .ranks = p, .micro_batches = m}, latency),
                  3.0 * (m + p - 1) + latency * (2.0 * (p - 1) * (m / p + 1) - 2.0), 1e-9)
          << "p=" << p << " m=" << m;
    }
  }
  EXPECT_NEAR(makespan({.name = "1f1b", .ranks = 8, .micro_batches = 32}, 0.1), 123.8, 1e-9);
  EXPECT_NEAR(makespan({.name = "zb-h1", .ranks = 8, .micro_batches = 32}, 0.1), 105.8, 1e-9);
  EXPECT_NEAR(makespan({.name = "interleaved", .ranks = 8, .micro_batches = 32, .chunks = 2}, 0.1), 109.5, 1e-9);
  EXPECT_NEAR(makespan({.name = "breadth-first", .ranks = 8, .micro_batches = 32, .chunks = 2}, 0.1), 107.9, 1e-9);
  const ScheduleRequest wide_groups{
      .name = "interleaved", .ranks = 8, .micro_batches = 32, .chunks = 2, .group_size = 16};
  EXPECT_NEAR(makespan(wide_groups, 0.1), 107.9, 1e-9);
  EXPECT_DOUBLE_EQ(peak(simulate(make_schedule(wide_groups), Costs{})), 15.5);
}

// Megatron-LM's groups of 16 need 12 receive slots on some channel to run at full speed.
TEST(SimulatePublished, QueueOfWideGroups) {
  const Simulation simulation = simulate(
      make_schedule({.name = "interleaved", .ranks = 8, .micro_batches = 32, .chunks = 2, .group_size = 16}), Costs{});
  int longest = 0;
  for (const ChannelLoad& load : simulation.channels) longest = std::max(longest, load.longest_queue);
  EXPECT_EQ(longest, 12);
}

TEST(SimulatePublished, DualPipeFusedAndNot) {
  const auto bubble_time = [](const char* name, int p, int m, Costs costs, double fused) {
    const double busy = m * (costs.forward[0] + costs.input[0] + costs.weight[0]);
    if (fused > 0.0) costs.fused = {fused};
    return simulate(make_schedule({.name = name, .ranks = p, .micro_batches = m}), costs).makespan - busy;
  };
  for (const int p : {2, 4, 8, 12}) {
    const int m = 4 * p;
    EXPECT_NEAR(bubble_time("dualpipe", p, m, costs_of(1, 1, 1), 0.0), p / 2 - 1, 1e-9) << p;
    EXPECT_NEAR(bubble_time("dualpipe", p, m, costs_of(1, 1, 1), 3.0), 2.0 * (p / 2 - 1), 1e-9) << p;
  }
  for (const int p : {1, 2, 3, 4, 8}) {
    const int m = 4 * p;
    EXPECT_NEAR(bubble_time("dualpipev", p, m, costs_of(1, 1, 1), 0.0), 0.5 * (p - 1), 1e-9) << p;
    EXPECT_NEAR(bubble_time("dualpipev", p, m, costs_of(1, 1, 1), 3.0), 1.0 * (p - 1), 1e-9) << p;
  }
  // Not the 3 of the README's formula (PP/2-1)(F&B+B-3W), which holds for equal costs.
  EXPECT_NEAR(bubble_time("dualpipe", 4, 16, costs_of(2, 1, 1), 4.0), 4.0, 1e-9);
}

}  // namespace
}  // namespace train_gpt
