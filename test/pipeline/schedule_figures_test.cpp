// The published figures of every schedule: the table of its p = 4 and p = 8 cases, the closed forms over a grid, and
// the searched families of the golden lists, which ours must not fall behind.
#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/schedule_catalog.h"
#include "pipeline/simulate.h"
#include "test/pipeline/golden_lists.h"

namespace train_gpt {
namespace {

constexpr SimulateOptions kFiguresOnly{.intervals = false, .channels = false};

struct Figures {
  double makespan, span, bubble, peak;
};

Figures figures(const Schedule& schedule, const Costs& costs = {}) {
  const Simulation simulation = simulate(schedule, costs, kFiguresOnly);
  const double peak = *std::max_element(simulation.peak_live.begin(), simulation.peak_live.end());
  return {simulation.makespan, simulation.span, simulation.bubble, peak};
}

Costs costs(double forward, double input, double weight) {
  Costs result;
  result.forward = {forward};
  result.input = {input};
  result.weight = {weight};
  return result;
}

TEST(ScheduleFigures, TableAtEqualCosts) {
  struct Row {
    const char* name;
    int v;
    double makespan4, bubble4, peak4, makespan8, bubble8, peak8;
  };
  const Row rows[] = {{"gpipe", 1, 33, .2727, 8, 117, .1795, 32},
                      {"1f1b", 1, 33, .2727, 4, 117, .1795, 8},
                      {"interleaved", 2, 28.5, .1579, 5.5, 106.5, .0986, 11.5},
                      {"interleaved", 4, 26.25, .0857, 4.75, 101.25, .0519, 9.75},
                      {"breadth-first", 2, 28.5, .1579, 8, 106.5, .0986, 32},
                      {"zb-h1", 1, 27, .1111, 4, 103, .0680, 8},
                      {"interleaved-zb", 2, 25.5, .0588, 4, 99.5, .0352, 8},
                      {"zb-h2", 1, 27, .1111, 7, 103, .0680, 15},
                      {"zb-v", 2, 25.5, .0588, 4, 99.5, .0352, 8},
                      {"v-half", 2, 26.5, .0943, 3, 104.5, .0813, 5},
                      {"v-min", 2, 29.5, .1864, 2, 109.5, .1233, 4},
                      {"dualpipe", 1, 25, .0400, 5, 99, .0303, 9},
                      {"dualpipev", 2, 25.5, .0588, 4.5, 99.5, .0352, 8.5}};
  for (const Row& row : rows) {
    const Figures small = figures(make_schedule({.name = row.name, .ranks = 4, .micro_batches = 8, .chunks = row.v}));
    EXPECT_DOUBLE_EQ(small.makespan, row.makespan4) << row.name;
    EXPECT_NEAR(small.bubble, row.bubble4, 5e-5) << row.name;
    EXPECT_DOUBLE_EQ(small.peak, row.peak4) << row.name;
    const Figures large = figures(make_schedule({.name = row.name, .ranks = 8, .micro_batches = 32, .chunks = row.v}));
    EXPECT_DOUBLE_EQ(large.makespan, row.makespan8) << row.name;
    EXPECT_NEAR(large.bubble, row.bubble8, 5e-5) << row.name;
    EXPECT_DOUBLE_EQ(large.peak, row.peak8) << row.name;
  }
}

// A bubble time at equal costs and a peak, for enough micro-batches.
void expect_v_schedule(const std::string& name, int p, double bubble, double peak) {
  for (const int m : {2 * p, 3 * p + 1, 5 * p}) {
    const Figures ours = figures(make_schedule({.name = name, .ranks = p, .micro_batches = m}));
    EXPECT_DOUBLE_EQ(ours.makespan - 3 * m, bubble) << name << " p=" << p << " m=" << m;
    EXPECT_DOUBLE_EQ(ours.peak, peak) << name << " p=" << p << " m=" << m;
  }
}

TEST(ScheduleFigures, VHalf) {
  const std::pair<int, double> published[] = {{2, .5}, {4, 2.5}, {6, 5.5}, {8, 8.5}, {12, 14.5}, {16, 20.5}};
  for (const auto& [p, bubble] : published) expect_v_schedule("v-half", p, bubble, p / 2 + 1);
  for (int p = 3; p <= 17; p += 2) expect_v_schedule("v-half", p, (3 * p - 4) / 2.0, (p + 1) / 2);
}

TEST(ScheduleFigures, VMin) {
  struct Row {
    int p;
    double bubble, peak;
  };
  const Row published[] = {{2, 1.5, 2}, {4, 5.5, 2}, {6, 8.5, 3}, {8, 13.5, 4}, {16, 29.5, 6}};
  for (const auto& [p, bubble, peak] : published) expect_v_schedule("v-min", p, bubble, peak);
  expect_v_schedule("v-min", 3, 2.5, 2);
  expect_v_schedule("v-min", 12, 20.5, 5);
}

TEST(ScheduleFigures, NoWorseThanTheSearchedLists) {
  const std::pair<const char*, const char*> families[] = {
      {"zb_vhalf", "v-half"}, {"zb_vmin", "v-min"}, {"zb_zbv_auto", "zb-v"}};
  for (const auto& [family, name] : families) {
    for (const GoldenList& golden : golden_lists(family)) {
      const Figures theirs = figures(golden.schedule());
      const Figures ours = figures(make_schedule({.name = name, .ranks = golden.p, .micro_batches = golden.m}));
      EXPECT_LE(ours.makespan, theirs.makespan) << golden.title;
      EXPECT_LE(ours.span, theirs.span) << golden.title;
      EXPECT_LE(ours.peak, theirs.peak) << golden.title;
    }
  }
}

}  // namespace
}  // namespace train_gpt
