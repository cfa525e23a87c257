// The files by which ranks and `train_gpt status` see where each rank is.
#include "pipeline/train/state_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "pipeline/train/signals.h"

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

TEST_F(StateFiles, OtherNamesAreNotTakenForRanks) {
  StateFile mine(directory_, 0, 1);
  for (const char* name : {"state.99999999999999999999", "state.", "state.1x", "state.12345678901"}) {
    std::ofstream(directory_ + "/" + name) << "not a state";
  }
  EXPECT_EQ(read_states(directory_).size(), 1U);
}

TEST(IsGone, IsAProcessOfThisHostThatIsNoMore) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  RankState state;
  state.host = host_name();
  state.process = getpid();
  state.beat = monotonic_seconds();
  EXPECT_FALSE(is_gone(state));
  state.process = child;
  EXPECT_TRUE(is_gone(state));
  state.host = "elsewhere";
  EXPECT_FALSE(is_gone(state)) << "nothing can be known of it here";
  state.host = host_name();
  state.finished = true;
  EXPECT_FALSE(is_gone(state));
  state.finished = false;
  state.failure = "its disk is full";
  EXPECT_FALSE(is_gone(state));
  state.failure.clear();
  state.process = getpid();
  state.beat = monotonic_seconds() + 1000;  // of a clock that ran before the host was started again
  EXPECT_TRUE(is_gone(state));
}

TEST(Signals, AreKnownByTheirNames) {
  EXPECT_STREQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_STREQ(signal_name(SIGINT), "SIGINT");
  EXPECT_STREQ(signal_name(SIGUSR1), "SIGUSR1");
  EXPECT_STREQ(signal_name(SIGUSR2), "SIGUSR2");
  EXPECT_STREQ(signal_name(SIGHUP), "SIGHUP");
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
