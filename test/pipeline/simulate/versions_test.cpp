// 2bw and pipedream on paper: versions, buffers, the steady bubble and the room for clipping.
#include "pipeline/simulate/versions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "pipeline/schedule/flushless.h"
#include "pipeline/schedule/list_builder.h"
#include "pipeline/simulate/check_schedule.h"
#include "test/refused.h"

namespace train_gpt::test {
namespace {

Schedule two_bw(int p, int m, int w = 1, int steps = 12) {
  return make_schedule({.name = "2bw", .ranks = p, .micro_batches = m, .warmup_factor = w, .steps = steps});
}

template <class Visit>
void for_all_sizes(int w, const Visit& visit) {
  for (int p = 2; p <= 8; ++p)
    for (int m = std::max(1, w * (p - 1)); m <= 4 * p; ++m) visit(p, m);
}

// An event simulation of its own: every rank's clock, recomputed until nothing moves.
std::vector<std::vector<Interval>> relaxed(const Schedule& schedule, int m, double hop, bool with_norm,
                                           const std::function<double(int, std::size_t)>& duration) {
  std::vector<std::vector<Interval>> times(schedule.lists.size());
  for (std::size_t r = 0; r < times.size(); ++r) times[r].resize(schedule.lists[r].size());
  std::vector<std::vector<double>> forward(times.size()), backward(times.size());
  for (auto* ends : {&forward, &backward})
    for (auto& one : *ends) one.assign(static_cast<std::size_t>(schedule.micro_batches), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t r = 0; r < times.size(); ++r) {
      double clock = 0;
      for (std::size_t i = 0; i < times[r].size(); ++i) {
        const Action& action = schedule.lists[r][i];
        const auto mb = static_cast<std::size_t>(action.micro_batch);
        const bool is_forward = action.op == Op::forward;
        double start = clock;
        if (is_forward && r > 0) start = std::max(start, forward[r - 1][mb] + hop);
        if (!is_forward && r + 1 < times.size()) start = std::max(start, backward[r + 1][mb] + hop);
        if (with_norm && action.micro_batch / m >= 2) {
          for (const auto& of_rank : backward)
            start = std::max(start, of_rank[static_cast<std::size_t>((action.micro_batch / m - 1) * m - 1)]);
        }
        clock = start + duration(static_cast<int>(r), i);
        double& end = (is_forward ? forward : backward)[r][mb];
        changed = changed || end != clock;
        end = clock;
        times[r][i] = {start, clock};
      }
    }
  }
  return times;
}

TEST(TwoBufferedWeights, HasNoBubbleButThatOfFillAndDrain) {
  for (const int w : {1, 2}) {
    for_all_sizes(w, [&](int p, int m) {
      const Schedule schedule = two_bw(p, m, w);
      check_schedule(schedule);
      const Simulation simulation = simulate(schedule, Costs{});
      const SteadyState steady = steady_state(schedule, simulation);
      EXPECT_NEAR(steady.bubble, 0, 1e-12) << "p=" << p << " m=" << m << " w=" << w;
      EXPECT_NEAR(steady.period, 3 * m, 1e-9) << "p=" << p << " m=" << m << " w=" << w;
      EXPECT_NEAR(simulation.makespan, 3.0 * (12 * m + p - 1), 1e-9) << "p=" << p << " m=" << m << " w=" << w;
      EXPECT_EQ(simulation.peak_live.front(), w * (p - 1) + 1);
    });
  }
}

// Issue 18: hop .1, F 1, B 2, p 8: 5.8% longer periods with w = 1, none with w = 2.
TEST(TwoBufferedWeights, HopsCostTimeWithoutMoreForwardsAhead) {
  const Costs costs{.forward = {1}, .input = {1}, .weight = {1}, .latency = {0.1}};
  for (const int p : {2, 4, 8}) {
    const Schedule once = two_bw(p, 4 * p, 1, 40), twice = two_bw(p, 4 * p, 2, 40);
    const double hops = 2.0 * (p - 1) / p * 0.1 * 4 * p;
    EXPECT_NEAR(steady_state(once, simulate(once, costs)).period, 3 * 4 * p + hops, 0.02 * hops) << p;
    EXPECT_NEAR(steady_state(twice, simulate(twice, costs)).period, 3 * 4 * p, 1e-9) << p;
  }
}

// Whatever actions and messages cost: the norm is there before anyone asks for it, so waiting for it changes nothing;
// and the simulator says what the plain one here says.
TEST(TwoBufferedWeights, ClippingIsFree) {
  std::mt19937 random(1);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  for (int trial = 0; trial < 200; ++trial) {
    const int p = 2 + static_cast<int>(random() % 5), w = 1 + static_cast<int>(random() % 2);
    const int m = w * (p - 1) + static_cast<int>(random() % 4);
    const Schedule schedule = two_bw(p, m, w, 5);
    ActionDurations durations;
    for (const std::vector<Action>& list : schedule.lists) {
      durations.emplace_back();
      for (std::size_t i = 0; i < list.size(); ++i) durations.back().push_back(uniform(0.1, 5));
    }
    const double hop = trial % 3 == 0 ? 0 : uniform(0, 3);
    const auto of = [&](int r, std::size_t i) { return durations[static_cast<std::size_t>(r)][i]; };
    const auto with_norm = relaxed(schedule, m, hop, true, of), without = relaxed(schedule, m, hop, false, of);
    const Simulation simulation = simulate(schedule, Costs{.latency = {hop}}, {.durations = &durations});
    for (std::size_t r = 0; r < with_norm.size(); ++r) {
      for (std::size_t i = 0; i < with_norm[r].size(); ++i) {
        ASSERT_EQ(with_norm[r][i].start, without[r][i].start) << "p=" << p << " m=" << m << " w=" << w;
        ASSERT_NEAR(simulation.intervals[r][i].end, with_norm[r][i].end, 1e-9) << "p=" << p << " m=" << m;
      }
    }
    EXPECT_EQ(update_slack(schedule), m - w * (p - 1));
  }
}

// Which actions of which ranks are over before an action begins, by lists and messages alone, computed the long way:
// [rank][position in its list], per rank the actions that are.
using Past = std::vector<std::vector<std::vector<std::size_t>>>;
Past past_of(const Schedule& schedule) {
  const auto p = static_cast<std::size_t>(schedule.ranks);
  Past past(p);
  std::vector<std::vector<std::size_t>> forward(static_cast<std::size_t>(schedule.micro_batches)), backward = forward;
  for (std::size_t left = 1; left > 0;) {
    left = 0;
    for (std::size_t r = 0; r < p; ++r) {
      const std::vector<Action>& list = schedule.lists[r];
      for (std::size_t i = past[r].size(); i < list.size(); ++i) {
        const auto mb = static_cast<std::size_t>(list[i].micro_batch);
        const bool is_forward = list[i].op == Op::forward;
        const bool has_input = is_forward ? r > 0 : r + 1 < p;
        auto& arrived = is_forward ? forward : backward;
        if (has_input && (arrived[mb].empty() || arrived[mb].back() != (is_forward ? r - 1 : r + 1))) break;
        std::vector<std::size_t> before = i > 0 ? past[r][i - 1] : std::vector<std::size_t>(p, 0);
        before[r] = i;
        for (std::size_t q = 0; has_input && q < p; ++q) before[q] = std::max(before[q], arrived[mb][q]);
        past[r].push_back(before);
        before[r] = i + 1;
        before.push_back(r);  // who sent it
        arrived[mb] = before;
      }
      left += list.size() - past[r].size();
    }
  }
  return past;
}

// What update_slack() concludes from three facts, by following every list and message: before a rank's first action of
// step t+2 begins, all ranks are through with their last backward of step t. And by how much on rank 0.
TEST(TwoBufferedWeights, GradientsAreCompleteBeforeAnybodyNeedsTheirUpdate) {
  for (const int w : {1, 2}) {
    for_all_sizes(w, [&](int p, int m) {
      const Schedule schedule = two_bw(p, m, w, 6);
      const Past past = past_of(schedule);
      const auto position = [&](int rank, const auto& is_it) {
        const std::vector<Action>& list = schedule.actions(rank);
        return static_cast<std::size_t>(std::ranges::find_if(list, is_it) - list.begin());
      };
      for (int step = 0; step + 2 < schedule.steps; ++step) {
        const auto ends = [&](const Action& one) {
          return one.op == Op::backward && one.micro_batch == (step + 1) * m - 1;
        };
        const auto begins = [&](const Action& one) { return one.micro_batch == (step + 2) * m; };
        for (int rank = 0; rank < p; ++rank) {
          const std::vector<std::size_t>& over = past[static_cast<std::size_t>(rank)][position(rank, begins)];
          for (int other = 0; other < p; ++other)
            ASSERT_GT(over[static_cast<std::size_t>(other)], position(other, ends)) << "p=" << p << " m=" << m;
        }
        EXPECT_EQ(position(0, begins) - position(0, ends) - 1, static_cast<std::size_t>(2 * (m - w * (p - 1))));
      }
      EXPECT_EQ(update_slack(schedule), m - w * (p - 1)) << "p=" << p << " w=" << w;
    });
  }
}

// Lists that run, and keep all versions apart, but in which an update may be waited for.
TEST(TwoBufferedWeights, WhereAnUpdateCouldHoldUpAnActionIsRefused) {
  const auto swapped = [](int rank, Action a, Action b) {
    Schedule schedule = two_bw(2, 4, 1, 4);
    std::vector<Action>& list = schedule.lists[static_cast<std::size_t>(rank)];
    std::iter_swap(std::ranges::find(list, a), std::ranges::find(list, b));
    return schedule;
  };
  const auto forward = [](int rank, int mb) { return Action{.op = Op::forward, .stage = rank, .micro_batch = mb}; };
  const auto backward = [](int rank, int mb) { return Action{.op = Op::backward, .stage = rank, .micro_batch = mb}; };
  EXPECT_REFUSED(check_versions(swapped(1, backward(1, 2), backward(1, 3))), "rank 1 runs 1B2",
                 "last backward of step 0", "rank 0 ends with 0B3");
  EXPECT_REFUSED(check_versions(swapped(1, forward(1, 8), forward(1, 9))), "rank 1 runs 1F9", "first action of step 2",
                 "rank 0 begins with 0F8");
  Schedule v_shaped = two_bw(2, 4, 1, 4);
  v_shaped.placement.kind = Placement::Kind::v_shape;
  EXPECT_REFUSED(check_versions(v_shaped), "every rank has one stage");
}

Schedule pipedream(int p, int m, int steps = 8) {
  return make_schedule({.name = "pipedream", .ranks = p, .micro_batches = m, .steps = steps});
}

// Issue 18's formula, and that versions are enough: counted by walking the lists with an update after every backward.
TEST(PipeDreamLists, AForwardHasTheNewestVersionAndStagesKeepAsManyAsTheyAreFromTheEnd) {
  for_all_sizes(1, [](int p, int m) {
    const Schedule schedule = pipedream(p, m);
    check_schedule(schedule);
    EXPECT_NEAR(steady_state(schedule, simulate(schedule, Costs{})).bubble, 0, 1e-12);
    for (int s = 0; s < p; ++s) {
      int newest = 0;
      std::size_t most = 0;
      std::map<int, int> used;  // version of each micro-batch between its F and its B
      for (const Action& action : schedule.actions(s)) {
        const int i = action.micro_batch, version = std::max(0, i - (p - s) + 1);
        EXPECT_EQ(version_of(schedule, action), version);
        if (action.op == Op::forward) {
          EXPECT_EQ(version, newest) << "p=" << p << " s=" << s << " F" << i;
          used[i] = version;
        } else {
          EXPECT_EQ(used.at(i), version);
        }
        std::set<int> kept = {newest};
        for (const auto& [mb, one] : used) kept.insert(one);
        most = std::max(most, kept.size());
        if (action.op == Op::backward) {
          used.erase(i);
          ++newest;
        }
      }
      EXPECT_EQ(most, static_cast<std::size_t>(p - s)) << "p=" << p;
      EXPECT_EQ(older_versions(schedule, s), p - s - 1);
    }
  });
  EXPECT_EQ(older_versions(two_bw(4, 4), 2), 1);
}

TEST(PipeDreamLists, AVersionThatDoesNotExistYetIsRefused) {
  Schedule early = pipedream(2, 2, 4);
  std::vector<Action>& list = early.lists[0];
  std::swap(list[2], list[3]);  // 0B0 after 0F2
  EXPECT_REFUSED(check_schedule(early), "0F2", "version 1", "only 0 backwards");
  Schedule turned = pipedream(2, 2, 4);
  std::swap(turned.lists[0][2], turned.lists[0][4]);  // F0 F1 B1 F2 B0
  EXPECT_REFUSED(check_versions(turned), "0B1", "in its turn, here 0B");
  EXPECT_REFUSED(pipedream(4, 2), "--micro-batches 2", "pipedream", "at least 3");
}

// The window of a rank in a middle step: as many actions as a step has, of which w(p-1-r) are forwards of the next.
TEST(TwoBufferedWeights, AWindowIsAStepOfARank) {
  for (const int w : {1, 2}) {
    const Schedule schedule = two_bw(4, 7, w, 8);
    const Schedule window = window_of(schedule);
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<Action>& list = window.actions(rank);
      EXPECT_EQ(list.size(), 14U);
      EXPECT_EQ(list.back(), (Action{.op = Op::backward, .stage = rank, .micro_batch = 6}));
      const auto ahead = std::ranges::count_if(list, [](const Action& one) { return one.micro_batch >= 7; });
      EXPECT_EQ(ahead, w * (3 - rank));
      EXPECT_EQ(update_position(window, rank), static_cast<std::size_t>(2 * (7 - w * (3 - rank))));
    }
    const Simulation step = simulate_step(schedule, stage_costs({}, schedule.placement));
    EXPECT_NEAR(step.makespan, 21, 1e-9);
    EXPECT_NEAR(step.bubble, 0, 1e-9);
    EXPECT_EQ(step.intervals[1].size(), 14U);
    EXPECT_DOUBLE_EQ(step.busy[2], 21);
  }
}

TEST(TwoBufferedWeights, NeedsAsManyMicroBatchesAsRankZeroRunsAhead) {
  EXPECT_REFUSED(two_bw(4, 2), "--micro-batches 2", "4 stages", "at least 3");
  EXPECT_REFUSED(two_bw(4, 5, 2), "--micro-batches 5", "--warmup-factor 2", "at least 6");
  EXPECT_EQ(two_bw(1, 1).lists.front().size(), 24U);
}

// Step 2 needs what the gradients of step 0 make, in the buffer that step 0 works with.
TEST(TwoBufferedWeights, AVersionThatDoesNotExistYetIsRefused) {
  Schedule early(Placement::loop(1, 1, 3), 3);  // one micro-batch per step
  early.name = "early";
  early.steps = 3;
  early.rank(0).forward(0, 0).forward(0, 1).forward(0, 2).backward(0, 0).backward(0, 1).backward(0, 2);
  EXPECT_REFUSED(check_schedule(early), "schedule early", "0F2", "version 1", "1 backwards of step 0");
  Schedule apart(Placement::loop(1, 1, 3), 3);
  apart.name = "apart";
  apart.steps = 3;
  apart.rank(0).forward(0, 0).forward(0, 1).backward(0, 0).forward(0, 2).backward(0, 1).backward(0, 2);
  check_schedule(apart);
}

}  // namespace
}  // namespace train_gpt::test
