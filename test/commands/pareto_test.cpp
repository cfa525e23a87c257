#include "commands/pareto.h"

#include <gtest/gtest.h>

namespace train_gpt {
namespace {

TEST(Pareto, TheBestAreThoseThatNothingBeatsInTheSameMemory) {
  std::vector<MemoryAndTime> points = {{"slow", 2, 40},      {"large", 9, 20}, {"small", 1, 50},
                                       {"wasteful", 10, 20}, {"fast", 4, 20},  {"useless", 3, 45}};
  mark_best(points);
  std::string best;
  for (const MemoryAndTime& point : points)
    if (point.best) best += point.name + " ";
  EXPECT_EQ(best, "small slow fast ");
  const std::string table = pareto_table(points);
  EXPECT_NE(table.find("\n* fast "), std::string::npos) << table;
  EXPECT_NE(table.find("\n  large "), std::string::npos) << table;
  const std::string svg = pareto_svg(points, "p < 4");
  EXPECT_NE(svg.find("p &lt; 4"), std::string::npos);
  EXPECT_NE(svg.find(">wasteful</text>"), std::string::npos);
}

}  // namespace
}  // namespace train_gpt
