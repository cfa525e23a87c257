// The partitioner against brute force: small random instances of every placement, with and without memory limits.
#include "pipeline/planner/partition_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "pipeline/planner/unit_costs.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double brute_force(const CutProblem& problem, Partition& sizes, std::size_t stage, int left) {
  if (stage + 1 == sizes.size()) {
    sizes[stage] = left;
    return slowest_rank(problem, sizes);
  }
  double best = kInfinity;
  for (int n = 1; n <= left - static_cast<int>(sizes.size() - stage - 1); ++n) {
    sizes[stage] = n;
    best = std::min(best, brute_force(problem, sizes, stage + 1, left - n));
  }
  return best;
}

Placement random_placement(std::mt19937& random) {
  const int m = 8;
  switch (random() % 5) {
    case 0:
      return Placement::loop(1 + static_cast<int>(random() % 4), 1, m);
    case 1:
      return Placement::loop(2, 2, m);
    case 2:
      return Placement::loop(3, 2, m);
    case 3:
      return Placement::v_shape(1 + static_cast<int>(random() % 3), m);
    default:
      return Placement::bidirectional(random() % 2 == 0 ? 2 : 4, m);
  }
}

// Few distinct values, as models have, or many.
CutProblem random_problem(std::mt19937& random) {
  CutProblem problem;
  problem.placement = random_placement(random);
  const int depth = problem.placement.depth();
  const int units = depth + static_cast<int>(random() % 6);
  const bool few_values = random() % 2 == 0;
  for (int u = 0; u < units; ++u) {
    problem.unit_ms.push_back(few_values ? static_cast<double>(1 + random() % 3)
                                         : std::uniform_real_distribution<>(0, 5)(random));
  }
  if (random() % 2 == 0) {
    for (int r = 0; r < problem.placement.ranks; ++r) {
      problem.slowness.push_back(std::uniform_real_distribution<>(0.5, 2)(random));
    }
  }
  if (random() % 2 == 0) {
    problem.unit_bytes.assign(static_cast<std::size_t>(depth), std::vector<double>(static_cast<std::size_t>(units)));
    for (std::vector<double>& of_stage : problem.unit_bytes) {
      for (double& bytes : of_stage) bytes = static_cast<double>(random() % 100);
    }
    const double each = 110.0 * units / problem.placement.ranks;
    for (int r = 0; r < problem.placement.ranks; ++r)
      problem.limit_bytes.push_back(each * 0.5 + static_cast<double>(random() % 40));
  }
  return problem;
}

TEST(FastestCut, EqualsBruteForceOnRandomInstances) {
  std::mt19937 random(1);
  int solvable = 0;
  int limited = 0;
  for (int i = 0; i < 600; ++i) {
    const CutProblem problem = random_problem(random);
    Partition sizes(static_cast<std::size_t>(problem.placement.depth()));
    const double best = brute_force(problem, sizes, 0, static_cast<int>(problem.unit_ms.size()));
    const std::optional<Cut> cut = fastest_cut(problem);
    ASSERT_EQ(cut.has_value(), best < kInfinity) << i;
    if (!cut) continue;
    ++solvable;
    limited += problem.limit_bytes.empty() ? 0 : 1;
    EXPECT_TRUE(cut->proven) << i;
    EXPECT_NEAR(cut->slowest_ms, best, 1e-7 * best) << i;
    EXPECT_EQ(cut->slowest_ms, slowest_rank(problem, cut->partition)) << i;
  }
  EXPECT_GT(solvable, 400);
  EXPECT_GT(limited, 100);
}

// A model of 24 layers with a large vocabulary, as costs usually are.
CutProblem gpt_problem(const Placement& placement, double head_ms) {
  CutProblem problem;
  problem.placement = placement;
  problem.unit_ms.push_back(0.5);
  for (int layer = 0; layer < 24; ++layer) {
    problem.unit_ms.push_back(5.5);
    problem.unit_ms.push_back(7.25);
  }
  problem.unit_ms.push_back(head_ms);
  return problem;
}

TEST(FastestCut, IsProvenForModelsOfUsualSize) {
  for (const Placement& placement : {Placement::loop(4, 1, 8), Placement::loop(8, 1, 8), Placement::v_shape(4, 8),
                                     Placement::v_shape(8, 16), Placement::bidirectional(8, 16)}) {
    const CutProblem problem = gpt_problem(placement, 40);
    const std::optional<Cut> cut = fastest_cut(problem);
    ASSERT_TRUE(cut.has_value());
    EXPECT_TRUE(cut->proven) << "p " << placement.ranks << " v " << placement.chunks;
  }
}

TEST(FastestCut, SlowRanksGetLess) {
  CutProblem problem;
  problem.placement = Placement::loop(2, 1, 4);
  problem.unit_ms.assign(12, 1.0);
  problem.slowness = {1, 2};
  EXPECT_EQ(fastest_cut(problem)->partition, (Partition{8, 4}));
}

TEST(FastestCut, SaysSoWhenNothingFitsTheMemory) {
  CutProblem problem;
  problem.placement = Placement::loop(2, 1, 4);
  problem.unit_ms.assign(4, 1.0);
  problem.unit_bytes.assign(2, std::vector<double>(4, 10.0));
  problem.limit_bytes = {30, 9};
  EXPECT_FALSE(fastest_cut(problem).has_value());
  problem.limit_bytes = {30, 10};
  EXPECT_EQ(fastest_cut(problem)->partition, (Partition{3, 1}));
}

TEST(EvenCut, GivesEveryStageItsShareAndAUnit) {
  EXPECT_EQ(even_cut({1, 1, 1, 1, 1, 1}, 3), (Partition{2, 2, 2}));
  EXPECT_EQ(even_cut({4, 1, 1, 1, 1}, 2), (Partition{1, 4}));
  EXPECT_EQ(even_cut({1, 1, 1, 9}, 3), (Partition{2, 1, 1}));
  EXPECT_EQ(even_cut({9, 1, 1}, 3), (Partition{1, 1, 1}));
}

TEST(RefinePartition, NeverMakesASimulatedStepSlower) {
  const ModelConfig model = preset("d6");
  for (const char* name : {"1f1b", "interleaved", "zb-v", "dualpipe"}) {
    const Schedule schedule = make_schedule({.name = name, .ranks = 4, .micro_batches = 8});
    if (schedule.placement.depth() > unit_count(model)) continue;
    const UnitCosts costs = estimated_unit_costs(model, 256, 4);
    const auto makespan = [&](const Partition& partition) {
      return simulate(schedule, stage_costs(costs, HeadForm::streamed, schedule.placement, partition, {}, {})).makespan;
    };
    const Partition uniform = uniform_partition(model, schedule.placement.depth());
    const Partition refined = refine_partition(uniform, makespan, 2000);
    EXPECT_LT(makespan(refined), makespan(uniform)) << name;  // the vocabulary makes the head heavy
    check_partition(refined, model, schedule.placement.depth());
  }
}

TEST(RefinePartition, LeavesWhatDoesNotFitForWhatDoes) {
  const auto cost = [](const Partition& sizes) { return sizes[0] > 3 ? kInfinity : 10.0 - sizes[0]; };
  EXPECT_EQ(refine_partition({4, 1}, cost, 100), (Partition{3, 2}));
}

}  // namespace
}  // namespace train_gpt
