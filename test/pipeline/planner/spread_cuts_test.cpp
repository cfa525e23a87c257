// Cuts whose ranks have equally much to do, against sums by hand and against every schedule with a name.
#include "pipeline/planner/spread_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "pipeline/planner/unit_costs.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {
namespace {

CutProblem cut_problem(const Placement& placement, const std::vector<double>& unit_ms) {
  CutProblem problem;
  problem.placement = placement;
  problem.unit_ms = unit_ms;
  return problem;
}

std::vector<double> totals(const UnitCosts& units) {
  std::vector<double> ms;
  for (std::size_t u = 0; u < units.forward.size(); ++u) ms.push_back(units.total(u));
  return ms;
}

TEST(LeastStep, IsTheWaitAndTheWorkOfTheSlowestRank) {
  CutProblem cut = cut_problem(Placement::loop(2, 1, 4), {3, 3, 3});
  EXPECT_DOUBLE_EQ(least_step({cut, {1, 1, 1}, 3, 4}, {2, 1}), 24);  // 4 * 6 on rank 0
  EXPECT_DOUBLE_EQ(least_step({cut, {1, 1, 1}, 3, 4}, {1, 2}), 25);  // 4 * 6 on rank 1, after one F
  cut.slowness = {2, 1};
  EXPECT_DOUBLE_EQ(least_step({cut, {1, 1, 1}, 3, 4}, {1, 2}), 26);  // after an F that takes twice as long
  cut.placement = Placement::v_shape(2, 4);
  cut.unit_ms = {3, 3, 3, 3, 1};
  cut.slowness.clear();
  EXPECT_DOUBLE_EQ(least_step({cut, {1, 1, 1, 1, 1}, 4, 4}, {1, 1, 1, 2}), 28);  // rank 0: 4 * (3 + 4)
}

// Sixteen ranks cannot have a sixteenth of 48 layers and a small head each if layers are dealt out in a row: the
// slowest one has 3.4 layers of 3.04. Stages of a layer, and of a shard, come within 2%.
TEST(SpreadCuts, RanksHaveEquallyMuchToDo) {
  ModelConfig model{.layers = 48, .heads = 32, .hidden = 4096, .max_seq_len = 2048};
  for (const int vocabulary : {32768, 131072}) {
    model.vocab = vocabulary;
    const UnitCosts units = estimated_unit_costs(model, 2048, 16);
    const CutProblem cut = cut_problem(Placement::loop(16, 4, 128), totals(units));
    const SpreadProblem problem{cut, units.forward, units.first_head, 128};
    const std::vector<Partition> cuts = spread_cuts(problem, 3);
    ASSERT_FALSE(cuts.empty());
    double before = 0;
    for (const Partition& partition : cuts) {
      EXPECT_EQ(partition.size(), 64u);
      EXPECT_EQ(std::accumulate(partition.begin(), partition.end(), 0), unit_count(model));
      EXPECT_GE(*std::min_element(partition.begin(), partition.end()), 1);
      EXPECT_GE(least_step(problem, partition), before);
      before = least_step(problem, partition);
    }
    EXPECT_LT(least_step(problem, cuts.front()), 1.02 * 3 * 128) << vocabulary;
    const CutProblem in_a_row = cut_problem(Placement::loop(16, 1, 128), totals(units));
    const SpreadProblem coarse{in_a_row, units.forward, units.first_head, 128};
    EXPECT_GT(least_step(coarse, spread_cuts(coarse, 1).front()), 1.08 * 3 * 128) << vocabulary;
  }
}

TEST(SpreadCuts, NoScheduleIsFasterThanTheLeastStep) {
  const ModelConfig model{.layers = 6, .heads = 2, .hidden = 48, .vocab = 9000, .max_seq_len = 128};
  const UnitCosts units = estimated_unit_costs(model, 128, 4);
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = make_schedule({.name = name, .ranks = 4, .micro_batches = 8});
    const CutProblem cut = cut_problem(schedule.placement, totals(units));
    const SpreadProblem problem{cut, units.forward, units.first_head, 8};
    for (const Partition& partition : spread_cuts(problem, 3)) {
      const StageCosts costs = stage_costs(units, HeadForm::stored, schedule.placement, partition, {}, {});
      EXPECT_LE(least_step(problem, partition), simulate(schedule, costs).makespan * (1 + 1e-9)) << name;
    }
  }
  const CutProblem twice = cut_problem(Placement::bidirectional(4, 8), {1, 1, 1, 1, 1});
  EXPECT_TRUE(spread_cuts({twice, {1, 1, 1, 1, 1}, 5, 8}, 3).empty());  // two copies have other ranks at their ends
}

}  // namespace
}  // namespace train_gpt
