#include "commands/run/stragglers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

struct Job {
  Schedule schedule = make_schedule({.name = "1f1b", .ranks = 4, .micro_batches = 8});
  StageCosts planned =
      stage_costs(Costs{.forward = {10}, .input = {10}, .weight = {10, 10, 10, 20}}, schedule.placement);
  std::vector<double> busy = simulate(schedule, planned).busy;

  std::vector<RankTimes> times(const std::vector<double>& slowness) const {
    std::vector<RankTimes> all;
    for (std::size_t r = 0; r < slowness.size(); ++r) all.push_back({0, 1000, busy[r % busy.size()] * slowness[r]});
    return all;
  }
};

TEST(Stragglers, ARankThatStaysSlowIsNamedOnceWithWhatItCosts) {
  const Job job;
  Stragglers stragglers(job.schedule, job.planned, 4);
  std::vector<std::string> lines;
  for (int step = 0; step < 60; ++step) {
    std::string line = stragglers.add(job.times({1, 1, 1.5, 1.02}));
    EXPECT_EQ(line.empty(), step != 19) << step;
    if (!line.empty()) lines.push_back(line);
  }
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("rank 2 has been 50% slower"), std::string::npos) << lines[0];
  // 1f1b of four ranks: (1 + 1 + 1) F and B before rank 3's own, which has the most to do without rank 2's slowness.
  StageCosts slow = job.planned, usual = job.planned;
  for (std::vector<double>* pass : {&slow.forward, &slow.input, &slow.weight}) (*pass)[2] *= 1.5, (*pass)[3] *= 1.02;
  for (std::vector<double>* pass : {&usual.forward, &usual.input, &usual.weight}) (*pass)[3] *= 1.02;
  char text[80];
  std::snprintf(text, sizeof text, "%.1f ms instead of %.1f", simulate(job.schedule, usual).makespan,
                simulate(job.schedule, slow).makespan);
  EXPECT_NE(lines[0].find(text), std::string::npos) << lines[0] << " lacks " << text;
}

TEST(Stragglers, AStepNowAndThenIsNoStraggler) {
  const Job job;
  Stragglers stragglers(job.schedule, job.planned, 4);
  for (int step = 0; step < 100; ++step)
    EXPECT_EQ(stragglers.add(job.times({1, step % 20 == 19 ? 1.1 : 1.4, 1, 1})), "") << step;
}

TEST(Stragglers, AllSlowTogetherIsNobodysFault) {
  const Job job;
  Stragglers stragglers(job.schedule, job.planned, 8);
  for (int step = 0; step < 40; ++step) EXPECT_EQ(stragglers.add(job.times({2, 2, 2, 2, 2, 2.1, 2, 2})), "") << step;
}

TEST(Stragglers, ARankOfASecondPipelineIsFoundAmongAllRanks) {
  const Job job;
  Stragglers stragglers(job.schedule, job.planned, 8);
  std::string line;
  for (int step = 0; step < 20; ++step) line = stragglers.add(job.times({1, 1, 1, 1, 1, 1, 1.2, 1}));
  EXPECT_NE(line.find("rank 6 has been 20% slower"), std::string::npos) << line;
}

}  // namespace
}  // namespace train_gpt
