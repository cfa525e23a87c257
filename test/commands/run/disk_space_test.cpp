// Room for what a run writes is looked for before its first step.
#include "commands/run/disk_space.h"

#include <gtest/gtest.h>

#include "model/checkpoint.h"
#include "test/refused.h"

namespace train_gpt::test {
namespace {

constexpr std::int64_t kRest = std::int64_t{1} << 20;
const std::int64_t kModel = model_file_bytes({}, Precision::fp32);
const std::int64_t kCheckpoint = kModel + optimizer_file_bytes({});

std::vector<std::string> notes(const DiskSpace& space, const RunOptions& run = {}, bool keeps_best = false) {
  return check_disk_space(space, run, {}, keeps_best);
}

TEST(DiskSpace, ACheckpointIsTwelveBytesAParameter) {
  const ModelConfig model;
  EXPECT_EQ(kCheckpoint, 12 * element_count(model) + 2 * 1024);
}

TEST(DiskSpace, OneCheckpointAndTheModelsMustFit) {
  RunOptions last;  // one checkpoint, after the last step
  last.checkpoint_seconds = 0;
  EXPECT_TRUE(notes({.free = kCheckpoint + kModel + kRest}, last).empty());
  EXPECT_REFUSED(notes({.free = kCheckpoint + kModel + kRest - 1}, last), "free, but one checkpoint (");
  EXPECT_REFUSED(notes({.free = kCheckpoint + kModel + kRest}, last, true), "free, but one checkpoint (");
  EXPECT_TRUE(notes({.free = kCheckpoint + 3 * kModel + kRest}, last, true).empty());
}

TEST(DiskSpace, KeepAndOneMoreAreNoted) {
  RunOptions run;
  run.keep = 3;
  const std::int64_t four = 4 * kCheckpoint + kModel + kRest;
  EXPECT_TRUE(notes({.free = four}, run).empty());
  ASSERT_EQ(notes({.free = four - 1}, run).size(), 1U);
  EXPECT_NE(notes({.free = four - 1}, run)[0].find("lower --keep"), std::string::npos);
  EXPECT_TRUE(notes({.free = four - 2 * kCheckpoint, .own_checkpoints = 2}, run).empty());
  EXPECT_TRUE(notes({.free = four - 10, .overwritten_bytes = 10}, run).empty());
  run.checkpoint_every = 100;
  run.steps = 200;  // two in all
  EXPECT_TRUE(notes({.free = four - 2 * kCheckpoint}, run).empty());
  EXPECT_EQ(notes({.free = four - 2 * kCheckpoint - 1}, run).size(), 1U);
}

TEST(DiskSpace, TheLimitOfFileSizesIsNamed) {
  const std::int64_t largest = optimizer_file_bytes({});
  EXPECT_TRUE(notes({.free = INT64_MAX, .largest_file = largest}).empty());
  EXPECT_REFUSED(notes({.free = INT64_MAX, .largest_file = largest - 1}), "ulimit -f");
}

TEST(DiskSpace, IsThatOfTheFolder) {
  const DiskSpace space = disk_space("/", {});
  EXPECT_GT(space.free, 0);
  EXPECT_EQ(space.largest_file, 0);
  EXPECT_THROW(disk_space("/none/such", {}), std::runtime_error);
}

}  // namespace
}  // namespace train_gpt::test
