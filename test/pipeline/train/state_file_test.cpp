// The files by which ranks and `train_gpt status` see where each rank is.
#include "pipeline/train/state_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace train_gpt {
namespace {

class StateFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "state_files_" + std::to_string(getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(StateFiles, TellWhatEachRankDoes) {
  StateFile first(directory_, 0, 2);
  StateFile second(directory_, 1, 2);
  first.set_step(7);
  first.set_doing("computing 0F3");
  second.fail("out of patience");
  const std::vector<RankState> states = read_states(directory_);
  ASSERT_EQ(states.size(), 2U);
  EXPECT_EQ(states[0].step, 7);
  EXPECT_EQ(states[0].doing, "computing 0F3");
  EXPECT_EQ(states[0].failure, "");
  EXPECT_EQ(states[1].failure, "out of patience");
}

TEST_F(StateFiles, RanksOfAnEarlierLargerRunAreGone) {
  for (int rank = 0; rank < 4; ++rank) StateFile(directory_, rank, 4).finish();
  std::ofstream(directory_ + "/state.txt") << "not a state";
  for (int rank = 0; rank < 2; ++rank) StateFile(directory_, rank, 2).finish();
  const std::vector<RankState> states = read_states(directory_);
  ASSERT_EQ(states.size(), 2U);
  EXPECT_EQ(states[1].ranks, 2);
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/state.txt"));
}

TEST_F(StateFiles, AFolderThatIsMissingIsNamed) {
  try {
    StateFile(directory_ + "/missing", 0, 1);
    FAIL() << "was written";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(directory_ + "/missing/state.0 cannot be written"), std::string::npos);
  }
}

}  // namespace
}  // namespace train_gpt
