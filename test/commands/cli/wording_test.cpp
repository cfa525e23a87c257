#include "commands/cli/wording.h"

#include <gtest/gtest.h>

namespace train_gpt {
namespace {

TEST(Wording, CountsAndDurations) {
  EXPECT_EQ(counted(1, "document"), "1 document");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(2, "rank"), "2 ranks");
  EXPECT_EQ(duration_text(0.4), "0 s");
  EXPECT_EQ(duration_text(59.6), "1 min");
  EXPECT_EQ(duration_text(125), "2 min 5 s");
  EXPECT_EQ(duration_text(3 * 3600 + 50 * 60 + 12), "3 h 50 min");
  EXPECT_EQ(duration_text(2 * 86400 + 3 * 3600), "2 d 3 h");
  EXPECT_EQ(rough_duration(0.2), "1 s");
  EXPECT_EQ(rough_duration(89), "89 s");
  EXPECT_EQ(rough_duration(91), "2 min");
  EXPECT_EQ(rough_duration(5 * 3600 + 600), "5 h");
  EXPECT_EQ(rough_duration(40 * 86400), "40 d");
  EXPECT_EQ(clock_text(7), "0:07");
  EXPECT_EQ(clock_text(125), "2:05");
  EXPECT_EQ(clock_text(3 * 3600 + 50 * 60 + 2), "3:50:02");
  EXPECT_EQ(clock_text(-1), "0:00");
  EXPECT_EQ(grouped_digits(999), "999");
  EXPECT_EQ(grouped_digits(1000), "1,000");
  EXPECT_EQ(grouped_digits(124439808), "124,439,808");
  EXPECT_EQ(grouped_digits(-1000), "-1,000");
}

}  // namespace
}  // namespace train_gpt
