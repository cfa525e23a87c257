// The simulator makes steps of which all is known; what-if has to find out from their times alone.
#include "pipeline/measure/what_if.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

#include "pipeline/measure/records_file.h"
#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

struct Truth {
  Schedule schedule = make_schedule({.name = "1f1b", .ranks = 4, .micro_batches = 12});
  Costs planned = {.forward = {10, 11, 12, 20}, .input = {11, 12, 13, 22}, .weight = {9, 8, 7, 10}};
  std::vector<double> slowness = {1, 1, 1, 1};  // [rank]
  double jitter = 0;                            // each action takes up to so much of itself more or less
  double gap = 0;                               // ms between two actions, whatever they wait for
};

class Noise {
 public:
  double next() {  // -1 .. 1
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state_ >> 11) * 0x1.0p-52 - 1;
  }

 private:
  std::uint64_t state_ = 7;
};

ActionDurations durations_of(const Truth& truth, const StageCosts& costs, Noise& noise) {
  ActionDurations durations;
  for (int rank = 0; rank < truth.schedule.ranks; ++rank) {
    std::vector<double>& list = durations.emplace_back();
    for (const Action& action : truth.schedule.actions(rank)) {
      const auto s = static_cast<std::size_t>(action.stage);
      double ms = action.op == Op::forward ? costs.forward[s] : 0;
      if (action.op == Op::backward || action.op == Op::backward_input) ms += costs.input[s];
      if (action.op == Op::backward || action.op == Op::backward_weight) ms += costs.weight[s];
      const double slowness = truth.slowness[static_cast<std::size_t>(rank)];
      list.push_back(ms * slowness * (1 + truth.jitter * noise.next()) + truth.gap);
    }
  }
  return durations;
}

RecordedSteps recorded(const Truth& truth, int steps = 6) {
  const StageCosts costs = stage_costs(truth.planned, truth.schedule.placement);
  RecordedSteps result{truth.schedule, costs, {}};
  Noise noise;
  for (int step = 0; step < steps; ++step) {
    const ActionDurations durations = durations_of(truth, costs, noise);
    const Simulation run = simulate(truth.schedule, costs, {.durations = &durations});
    RecordedStep& it = result.steps.emplace_back(RecordedStep{step, run.makespan + 5, {}});
    for (int rank = 0; rank < truth.schedule.ranks; ++rank) {
      std::vector<RecordedAction>& list = it.actions.emplace_back();
      const auto r = static_cast<std::size_t>(rank);
      for (std::size_t i = 0; i < run.intervals[r].size(); ++i) {
        const Action& action = truth.schedule.actions(rank)[i];
        const auto s = static_cast<std::size_t>(action.stage);
        const Interval& interval = run.intervals[r][i];
        const double input = costs.input[s] / (costs.input[s] + costs.weight[s]);
        const double begin = interval.start + truth.gap;
        const double middle = action.op == Op::backward ? begin + input * (interval.end - begin) : begin;
        list.push_back({100 + begin, 100 + middle, 100 + interval.end});
      }
    }
  }
  return result;
}

double makespan(const Truth& truth) {
  return simulate(truth.schedule, stage_costs(truth.planned, truth.schedule.placement)).makespan;
}

void expect_within(double found, double right, double tolerance) {
  EXPECT_NEAR(found / right, 1, tolerance) << found << " where " << right << " is right";
}

TEST(WhatIf, WhatWasRecordedTakesAsLongWhenItIsSimulatedAgain) {
  Truth truth;
  truth.planned.latency = {0.5, 2, 1};
  truth.jitter = 0.2;
  truth.gap = 0.3;
  const WhatIf what_if(recorded(truth));
  expect_within(what_if.replayed_ms(), what_if.measured_ms(), 2e-3);
  EXPECT_DOUBLE_EQ(what_if.whole_step_ms() > what_if.measured_ms(), true);
}

// The experiment of the straggler study: one rank is slowed down until the job takes 1.16, 1.40 and 2.03 times as long.
TEST(WhatIf, ASlowRankIsEstimatedWithinTwoPerCent) {
  for (const double wanted : {1.16, 1.40, 2.03}) {
    for (const int rank : {0, 1, 3}) {
      Truth truth;
      const double usual = makespan(truth);
      double& slowness = truth.slowness[static_cast<std::size_t>(rank)];
      const auto job = [&] {
        Truth quiet = truth;
        Noise noise;
        const StageCosts costs = stage_costs(quiet.planned, quiet.schedule.placement);
        const ActionDurations durations = durations_of(quiet, costs, noise);
        return simulate(quiet.schedule, costs, {.durations = &durations}).makespan / usual;
      };
      while (job() < wanted) slowness += 0.002;
      truth.jitter = 0.05;
      const WhatIf what_if(recorded(truth));
      const double estimate = what_if.replayed_ms() / what_if.makespan_if(what_if.rank_as_its_peers(rank));
      expect_within(estimate, wanted, 0.02);
      expect_within(what_if.replayed_ms() / what_if.makespan_if(what_if.every_rank_as_its_peers()), wanted, 0.02);
      expect_within(what_if.slowness_of_all(rank), slowness, 0.01);
    }
  }
}

// A rank that has more to do by design is not slow.
TEST(WhatIf, StagesThatDifferByDesignAreNotSlow) {
  const WhatIf what_if(recorded(Truth{}));
  expect_within(what_if.makespan_if(what_if.every_rank_as_its_peers()), what_if.replayed_ms(), 1e-9);
}

TEST(WhatIf, ALinkThatIsFreeAndALastStageLikeTheOthers) {
  Truth truth;
  truth.schedule = make_schedule({.name = "zb-h1", .ranks = 4, .micro_batches = 12});
  truth.planned.latency = {0.5, 8, 1};
  Truth free = truth, even = truth;
  const WhatIf what_if(recorded(truth));
  free.planned.latency = {0.5, 0, 1};
  expect_within(what_if.makespan_if(what_if.link_free(1, 2)), makespan(free), 1e-3);
  expect_within(what_if.makespan_if(what_if.link_free(2, 1)), makespan(free), 1e-3);
  even.planned.forward[3] = 11, even.planned.input[3] = 12, even.planned.weight[3] = 8;
  expect_within(what_if.makespan_if(what_if.last_stage_as_the_others()), makespan(even), 1e-3);
}

TEST(WhatIf, WithoutJitterIsWhatTheMeansTake) {
  Truth truth;
  truth.jitter = 0.3;
  const WhatIf what_if(recorded(truth, 200));
  expect_within(what_if.makespan_if(what_if.without_jitter()), makespan(truth), 0.01);
  EXPECT_GT(what_if.replayed_ms(), 1.001 * makespan(truth));
}

TEST(WhatIf, StepsOfOtherListsAreRefused) {
  RecordedSteps steps = recorded(Truth{});
  steps.steps[2].actions[1].pop_back();
  EXPECT_THROW(WhatIf{steps}, std::invalid_argument);
  steps.steps.clear();
  EXPECT_THROW(WhatIf{steps}, std::invalid_argument);
}

class RecordsFile : public testing::Test {
 protected:
  ~RecordsFile() override { std::remove(path_.c_str()); }
  StepRecord record(int step) const {
    StepRecord it{step, 0.5 * step, {}};
    it.ranks.push_back({1000.0 + step, {1, 2, static_cast<float>(step)}});
    it.ranks.push_back({2000.0 + step, {7}});
    return it;
  }
  std::string path_ = testing::TempDir() + "records_test.bin";
};

TEST_F(RecordsFile, ReadsWhatWasWrittenAndForgetsTheOldestSteps) {
  const std::int64_t header = 8 + 4 * 8 + 5, slot = 16 + 8 + 12 + 8 + 4;
  RecordsWriter writer(path_, "hello", {3, 1}, header + 4 * slot + 1);
  EXPECT_EQ(writer.steps_that_fit(), 4);
  EXPECT_EQ(writer.bytes_per_step(), slot);
  for (int step = 0; step < 10; ++step) {
    writer.write(record(step));
    writer.flush();
    const Records found = read_records(path_);
    EXPECT_EQ(found.header, "hello");
    ASSERT_EQ(found.steps.size(), static_cast<std::size_t>(std::min(step + 1, 4)));
    for (std::size_t i = 0; i < found.steps.size(); ++i) {
      const StepRecord wanted = record(std::max(0, step - 3) + static_cast<int>(i));
      EXPECT_EQ(found.steps[i].step, wanted.step);
      EXPECT_EQ(found.steps[i].ms, wanted.ms);
      for (int rank : {0, 1}) {
        EXPECT_EQ(found.steps[i].ranks[rank].base, wanted.ranks[rank].base);
        EXPECT_EQ(found.steps[i].ranks[rank].numbers, wanted.ranks[rank].numbers);
      }
    }
  }
}

TEST_F(RecordsFile, ADamagedFileIsRefusedAndAStepHalfWrittenLeftOut) {
  {
    RecordsWriter writer(path_, "hello", {3, 1}, 1 << 20);
    writer.write(record(0));
    writer.write(record(1));
    writer.flush();
  }
  std::string bytes;
  {
    std::ifstream file(path_, std::ios::binary);
    bytes.assign((std::istreambuf_iterator<char>(file)), {});
  }
  const auto with = [&](const std::string& text) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
    return read_records(path_);
  };
  EXPECT_EQ(with(bytes.substr(0, bytes.size() - 1)).steps.size(), 1u);
  for (const std::size_t size : {0ul, 7ul, 12ul, 30ul, 42ul})
    EXPECT_THROW(with(bytes.substr(0, size)), std::invalid_argument) << size;
  std::string other = bytes;
  other[0] = 'X';
  EXPECT_THROW(with(other), std::invalid_argument);
  other = bytes;
  other[8 + 15] = '\x7f';  // ranks
  EXPECT_THROW(with(other), std::invalid_argument);
}

}  // namespace
}  // namespace train_gpt
