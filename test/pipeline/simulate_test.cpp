// The simulator against the published anchors.
#include "pipeline/simulate.h"

#include <gtest/gtest.h>

#include "pipeline/schedule_catalog.h"

namespace train_gpt {
namespace {

TEST(Simulate, OneForwardOneBackwardLeavesThePublishedBubble) {
  const Simulation simulation = simulate(make_schedule({.name = "1f1b", .ranks = 4, .micro_batches = 8}), Costs{});
  EXPECT_EQ(simulation.makespan, 33.0);
  EXPECT_NEAR(simulation.bubble, 0.272727, 1e-6);
  EXPECT_EQ(simulation.lower_bound, 33.0);
  EXPECT_EQ(simulation.peak_live, (std::vector<double>{4, 3, 2, 1}));
  EXPECT_EQ(simulation.messages, 2 * 3 * 8);
}

}  // namespace
}  // namespace train_gpt
