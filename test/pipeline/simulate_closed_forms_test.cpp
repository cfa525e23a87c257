// Closed forms for makespan and peak memory over a grid of p, m, v within the domain in which they hold, free
// communication, several ratios of the costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pipeline/schedule_catalog.h"
#include "pipeline/simulate.h"

namespace train_gpt {
namespace {

struct Times {
  double forward, input, weight;
  double backward() const { return input + weight; }
  double all() const { return forward + input + weight; }
};

const std::vector<Times> kAllRatios = {{1, 1, 1}, {1, 1.25, 0.75}, {2, 1, 1}, {1, 0.5, 1.5}, {3, 5, 2}};
const std::vector<Times> kEqual = {{1, 1, 1}, {2.5, 2.5, 2.5}};

struct Sizes {
  int p, m, v, g;
};

struct ClosedForm {
  const char* name;
  std::vector<int> chunks;
  const std::vector<Times>& ratios;
  int (*smallest_m)(int p);
  double (*makespan)(const Sizes&, const Times&);
  double (*peak)(const Sizes&, int rank);
};

double flushed(const Sizes& s, const Times& t) { return (s.m + s.p - 1) * t.all(); }
double chunked(const Sizes& s, const Times& t) { return s.m * t.all() + (s.p - 1) * t.all() / s.v; }
double split(const Sizes& s, const Times& t) {
  return s.m * t.all() + (s.p - 1) * (t.forward + std::max(0.0, t.input - t.weight)) / s.v;
}

int any(int) { return 1; }
int one_per_rank(int p) { return p; }
int full(int p) { return 2 * p - 1; }

const std::vector<ClosedForm>& closed_forms() {
  static const std::vector<ClosedForm> forms = {
      {"gpipe", {1}, kAllRatios, any, flushed, [](const Sizes& s, int) { return double(s.m); }},
      {"1f1b", {1}, kAllRatios, any, flushed, [](const Sizes& s, int r) { return double(std::min(s.m, s.p - r)); }},
      {"interleaved",
       {2, 3, 4},
       kAllRatios,
       one_per_rank,
       chunked,
       [](const Sizes& s, int r) {
         return std::min(double(s.m), ((s.v - 1) * s.g + 2 * (s.p - 1 - r) + 1) / double(s.v));
       }},
      {"breadth-first",
       {1, 2, 3, 4},
       kAllRatios,
       one_per_rank,
       chunked,
       [](const Sizes& s, int) { return double(s.m); }},
      {"zb-h1", {1}, kAllRatios, one_per_rank, split, [](const Sizes& s, int) { return double(std::min(s.m, s.p)); }},
      {"interleaved-zb",
       {2, 3, 4},
       kAllRatios,
       one_per_rank,
       split,
       [](const Sizes& s, int) { return std::min(double(s.m), ((s.v - 1) * s.g + s.p) / double(s.v)); }},
      {"zb-h2",
       {1},
       kAllRatios,
       full,
       [](const Sizes& s, const Times& t) {
         return s.m * t.all() + (s.p - 1) * std::max(t.forward, t.forward + t.input - 2 * t.weight);
       },
       [](const Sizes& s, int) { return double(2 * s.p - 1); }},
      {"zb-v",
       {2},
       kEqual,
       full,
       [](const Sizes& s, const Times& t) { return s.m * t.all() + (s.p - 1) * t.forward / 2; },
       [](const Sizes& s, int) { return double(s.p); }},
  };
  return forms;
}

std::vector<int> sizes_from(int smallest, int p) {
  std::vector<int> result;
  for (int m : {smallest, smallest + 1, p + 1, 2 * p, 3 * p - 1, 4 * p, 4 * p + 3}) {
    if (m >= smallest) result.push_back(m);
  }
  return result;
}

TEST(SimulateClosedForms, MakespanAndPeak) {
  int cases = 0;
  for (const ClosedForm& form : closed_forms()) {
    for (const int p : {1, 2, 3, 4, 5, 8, 12}) {
      for (const int m : sizes_from(form.smallest_m(p), p)) {
        for (const int v : form.chunks) {
          const ScheduleRequest request{.name = form.name, .ranks = p, .micro_batches = m, .chunks = v};
          if (violation(request)) continue;
          SCOPED_TRACE(std::string(form.name) + " p=" + std::to_string(p) + " m=" + std::to_string(m) +
                       " v=" + std::to_string(v));
          const Schedule schedule = make_schedule(request);
          const Sizes sizes{p, m, v, default_group_size(p, m)};
          for (const Times& times : form.ratios) {
            const Costs costs{.forward = {times.forward}, .input = {times.input}, .weight = {times.weight}};
            const Simulation simulation = simulate(schedule, costs);
            EXPECT_NEAR(simulation.makespan, form.makespan(sizes, times), 1e-9)
                << times.forward << " " << times.input << " " << times.weight;
            for (int rank = 0; rank < p; ++rank) {
              EXPECT_NEAR(simulation.peak_live[rank], form.peak(sizes, rank), 1e-12) << "rank " << rank;
            }
            ++cases;
          }
        }
      }
    }
  }
  EXPECT_GT(cases, 2000);
}

// The zero-bubble papers' claim is about the span.
TEST(SimulateClosedForms, SpanBubbleOfZbH2) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {2 * p - 1, 2 * p, 4 * p + 1}) {
      const Schedule schedule = make_schedule({.name = "zb-h2", .ranks = p, .micro_batches = m});
      for (const Times& t : kAllRatios) {
        const Costs costs{.forward = {t.forward}, .input = {t.input}, .weight = {t.weight}};
        const double bubble = (p - 1) * std::max(0.0, t.forward + t.input - 2 * t.weight);
        EXPECT_NEAR(simulate(schedule, costs).span, m * t.all() + bubble, 1e-9) << p << " " << m;
      }
    }
  }
}

TEST(SimulateClosedForms, PeakOfBothDualPipes) {
  for (const int p : {2, 4, 6, 8}) {
    for (const int m : {2 * p, 4 * p + 2}) {
      for (const double live :
           simulate(make_schedule({.name = "dualpipe", .ranks = p, .micro_batches = m}), Costs{}).peak_live) {
        EXPECT_EQ(live, p + 1);
      }
      for (const double live :
           simulate(make_schedule({.name = "dualpipev", .ranks = p, .micro_batches = m}), Costs{}).peak_live) {
        EXPECT_EQ(live, p + 0.5);
      }
    }
  }
}

}  // namespace
}  // namespace train_gpt
