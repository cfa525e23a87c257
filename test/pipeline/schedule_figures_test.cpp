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

// ---- closed forms
// ------------------------------------------------------------------------------------------------------

struct Case {
  int p, m, v;
  double forward, input, weight;
  double backward() const { return input + weight; }
  double work() const { return m * (forward + input + weight); }
};

// Every p, m, v and costs of the grid with m >= least_m(p).
template <typename LeastM, typename Check>
void over_grid(const std::vector<int>& chunks, LeastM least_m, Check check) {
  const double all_costs[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 1.5, .5}, {1, .5, 1.5}, {3, 4, 2.5}};
  for (const int p : {1, 2, 3, 4, 5, 8}) {
    for (const int m : {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 15, 16, 17, 24, 33}) {
      if (m < least_m(p)) continue;
      for (const int v : chunks) {
        for (const auto& [f, i, w] : all_costs) check(Case{p, m, v, f, i, w});
      }
    }
  }
}

int any_m(int) { return 1; }
int at_least_p(int p) { return p; }
int at_least_2p_minus_1(int p) { return 2 * p - 1; }

std::string title(const std::string& name, const Case& c) {
  return name + " p=" + std::to_string(c.p) + " m=" + std::to_string(c.m) + " v=" + std::to_string(c.v) +
         " F=" + std::to_string(c.forward) + " I=" + std::to_string(c.input) + " W=" + std::to_string(c.weight);
}

// `peak_of_rank(r)`: the activations that rank r keeps alive at most.
template <typename Peak>
void expect_figures(const std::string& name, const Case& c, double makespan, Peak peak_of_rank) {
  const Schedule schedule = make_schedule({.name = name, .ranks = c.p, .micro_batches = c.m, .chunks = c.v});
  const Simulation simulation = simulate(schedule, costs(c.forward, c.input, c.weight), kFiguresOnly);
  EXPECT_NEAR(simulation.makespan, makespan, 1e-9 * makespan) << title(name, c);
  for (int r = 0; r < c.p; ++r) {
    EXPECT_DOUBLE_EQ(simulation.peak_live[static_cast<std::size_t>(r)], peak_of_rank(r))
        << title(name, c) << " r=" << r;
  }
}

TEST(ClosedForms, Gpipe) {
  over_grid({1}, any_m, [](const Case& c) {
    expect_figures("gpipe", c, (c.m + c.p - 1) * (c.forward + c.backward()), [&](int) { return c.m; });
  });
}

TEST(ClosedForms, OneForwardOneBackward) {
  over_grid({1}, any_m, [](const Case& c) {
    expect_figures("1f1b", c, (c.m + c.p - 1) * (c.forward + c.backward()),
                   [&](int r) { return std::min(c.m, c.p - r); });
  });
}

TEST(ClosedForms, Interleaved) {
  over_grid({1, 2, 3, 4}, at_least_p, [](const Case& c) {
    const double g = default_group_size(c.p, c.m);
    expect_figures("interleaved", c, c.work() + (c.p - 1) * (c.forward + c.backward()) / c.v,
                   [&](int r) { return std::min<double>(c.m, ((c.v - 1) * g + 2 * (c.p - 1 - r) + 1) / c.v); });
  });
}

TEST(ClosedForms, BreadthFirst) {
  over_grid({1, 2, 3, 4}, at_least_p, [](const Case& c) {
    expect_figures("breadth-first", c, c.work() + (c.p - 1) * (c.forward + c.backward()) / c.v,
                   [&](int) { return c.m; });
  });
}

TEST(ClosedForms, ZeroBubbleH1) {
  over_grid({1}, at_least_p, [](const Case& c) {
    expect_figures("zb-h1", c, c.work() + (c.p - 1) * (c.forward + std::max(0.0, c.input - c.weight)),
                   [&](int) { return std::min(c.m, c.p); });
  });
}

TEST(ClosedForms, InterleavedZeroBubble) {
  over_grid({1, 2, 3, 4}, at_least_p, [](const Case& c) {
    const double g = default_group_size(c.p, c.m);
    expect_figures("interleaved-zb", c, c.work() + (c.p - 1) * (c.forward + std::max(0.0, c.input - c.weight)) / c.v,
                   [&](int) { return std::min<double>(c.m, ((c.v - 1) * g + c.p) / c.v); });
  });
}

TEST(ClosedForms, ZeroBubbleH2) {
  over_grid({1}, at_least_2p_minus_1, [](const Case& c) {
    const double exposed = c.forward + c.input - 2 * c.weight;
    expect_figures("zb-h2", c, c.work() + (c.p - 1) * std::max(c.forward, exposed),
                   [&](int) { return std::min(c.m, 2 * c.p - 1); });
    const Figures ours = figures(make_schedule({.name = "zb-h2", .ranks = c.p, .micro_batches = c.m}),
                                 costs(c.forward, c.input, c.weight));
    EXPECT_NEAR(ours.span, c.work() + (c.p - 1) * std::max(0.0, exposed), 1e-9 * c.work()) << title("zb-h2", c);
  });
}

TEST(ClosedForms, ZeroBubbleVAtEqualCosts) {
  over_grid({2}, at_least_2p_minus_1, [](const Case& c) {
    if (c.forward != c.input || c.input != c.weight) return;
    expect_figures("zb-v", c, c.work() + (c.p - 1) * c.forward / 2, [&](int) { return std::min(c.m, c.p); });
    const Figures ours = figures(make_schedule({.name = "zb-v", .ranks = c.p, .micro_batches = c.m}));
    EXPECT_DOUBLE_EQ(ours.span, c.work()) << title("zb-v", c);
  });
}

TEST(ClosedForms, DualPipeAtEqualCosts) {
  for (const int p : {2, 4, 6, 8}) {
    for (const int m : {2 * p, 2 * p + 2, 4 * p, 6 * p}) {
      const Schedule dualpipe = make_schedule({.name = "dualpipe", .ranks = p, .micro_batches = m});
      const Figures unfused = figures(dualpipe);
      EXPECT_DOUBLE_EQ(unfused.makespan, 3 * m + (p / 2 - 1)) << "p=" << p << " m=" << m;
      EXPECT_DOUBLE_EQ(unfused.peak, p + 1) << "p=" << p << " m=" << m;
      Costs together;
      together.fused = {3.0};
      EXPECT_DOUBLE_EQ(figures(dualpipe, together).makespan, 3 * m + (p / 2 - 1) * 2.0) << "p=" << p << " m=" << m;
    }
  }
}

TEST(ClosedForms, DualPipeVAtEqualCosts) {
  for (const int p : {1, 2, 3, 4, 5, 8}) {
    for (const int m : {2 * p, 2 * p + 1, 3 * p + 1, 5 * p}) {
      const Schedule dualpipev = make_schedule({.name = "dualpipev", .ranks = p, .micro_batches = m});
      const Figures unfused = figures(dualpipev);
      EXPECT_DOUBLE_EQ(unfused.makespan, 3 * m + (p - 1) / 2.0) << "p=" << p << " m=" << m;
      EXPECT_DOUBLE_EQ(unfused.peak, p + 0.5) << "p=" << p << " m=" << m;
      Costs together;
      together.fused = {3.0};
      EXPECT_DOUBLE_EQ(figures(dualpipev, together).makespan, 3 * m + (p - 1) * 2.0 / 2) << "p=" << p << " m=" << m;
    }
  }
}

// The latency of hops: GPipe pays one round trip, 1F1B one for every p micro-batches.
TEST(ClosedForms, Latency) {
  Costs slow_hops = costs(1, 1, 1);
  slow_hops.latency = 1.0 / 64;
  for (const int p : {2, 3, 4, 8}) {
    for (const int rounds : {1, 2, 5}) {
      const int m = rounds * p;
      const Figures gpipe = figures(make_schedule({.name = "gpipe", .ranks = p, .micro_batches = m}), slow_hops);
      EXPECT_NEAR(gpipe.makespan, 3 * (m + p - 1) + 2 * (p - 1) * slow_hops.latency, 1e-9) << p << " " << m;
      const Figures ours = figures(make_schedule({.name = "1f1b", .ranks = p, .micro_batches = m}), slow_hops);
      EXPECT_NEAR(ours.makespan, 3 * (m + p - 1) + slow_hops.latency * (2 * (p - 1) * (rounds + 1) - 2), 1e-9)
          << p << " " << m;
    }
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
      // With fewer micro-batches the ZB-V list is cut, in PyTorch as here; the search for `auto` does better there.
      if (std::string(name) == "zb-v" && golden.m < 2 * golden.p - 1) continue;
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
