// The simulator against published figures that depend on its rules: hop latency, the span measure, fused pairs, queues.
// (The table at equal costs and the closed forms are in test/pipeline/schedule/figures_test.cpp.)
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {
namespace {

Costs costs_of(double forward, double input, double weight, double latency = 0.0) {
  return {.forward = {forward}, .input = {input}, .weight = {weight}, .latency = {latency}};
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

// p = 8, m = 32, a tenth of a forward per hop.
TEST(SimulatePublished, HopLatency) {
  const auto makespan = [](const char* name, int chunks, int group_size) {
    const ScheduleRequest request{
        .name = name, .ranks = 8, .micro_batches = 32, .chunks = chunks, .group_size = group_size};
    return simulate(make_schedule(request), costs_of(1.0, 1.0, 1.0, 0.1)).makespan;
  };
  EXPECT_NEAR(makespan("1f1b", 1, 0), 123.8, 1e-9);
  EXPECT_NEAR(makespan("zb-h1", 1, 0), 105.8, 1e-9);
  EXPECT_NEAR(makespan("interleaved", 2, 8), 109.5, 1e-9);
  EXPECT_NEAR(makespan("interleaved", 2, 16), 107.9, 1e-9);
  EXPECT_NEAR(makespan("breadth-first", 2, 0), 107.9, 1e-9);
}

// Megatron-LM's groups of 16 need 12 receive slots on some channel to run at full speed.
TEST(SimulatePublished, QueueOfWideGroups) {
  const ScheduleRequest request{.name = "interleaved", .ranks = 8, .micro_batches = 32, .chunks = 2, .group_size = 16};
  const Simulation simulation = simulate(make_schedule(request), Costs{});
  int longest = 0;
  for (const ChannelLoad& load : simulation.channels) longest = std::max(longest, load.longest_queue);
  EXPECT_EQ(longest, 12);
  EXPECT_DOUBLE_EQ(*std::max_element(simulation.peak_live.begin(), simulation.peak_live.end()), 15.5);
}

// The formula of DualPipe's README, (PP/2-1)(F&B+B-3W), is one for equal costs: with F = 2, I = W = 1 it says 3.
TEST(SimulatePublished, DualPipeBeyondItsFormula) {
  Costs costs = costs_of(2.0, 1.0, 1.0);
  costs.fused = {4.0};
  const Schedule schedule = make_schedule({.name = "dualpipe", .ranks = 4, .micro_batches = 16});
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).makespan, 16 * 4.0 + 4.0);
}

}  // namespace
}  // namespace train_gpt
