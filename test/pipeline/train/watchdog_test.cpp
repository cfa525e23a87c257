// Peers that fail, fall silent or never come to an end, on a clock that the test moves.
#include "pipeline/train/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

namespace train_gpt {
namespace {

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() : directory_(testing::TempDir() + "watchdog_" + std::to_string(getpid())) {
    std::filesystem::create_directories(directory_);
    mine_.emplace(directory_, 0, 2);
    peer_.emplace(directory_, 1, 2);
    peer_->set_stepping(true);
    watchdog_.emplace(
        *mine_, directory_, 0, 2, /*stall_timeout=*/10, /*launched=*/false, [] { return std::string("resting"); },
        [this] { return now_; });
  }
  ~WatchdogTest() override { std::filesystem::remove_all(directory_); }

  // The seconds, one at a time, after which the wait ended with an exception of this text; nothing: it did not.
  std::optional<int> wait(int seconds, bool peer_beats = false) {
    for (int second = 1; second <= seconds; ++second) {
      now_ += 1;
      if (peer_beats) peer_->beat();
      try {
        watchdog_->while_waiting();
      } catch (const std::runtime_error& error) {
        said_ = error.what();
        return second;
      }
    }
    return std::nullopt;
  }

  std::string directory_;
  double now_ = 1000;
  std::optional<StateFile> mine_, peer_;
  std::optional<Watchdog> watchdog_;
  std::string said_;
};

TEST_F(WatchdogTest, APeerThatFailedEndsComputingAndWaiting) {
  peer_->set_doing("reading");
  now_ += 1;
  EXPECT_NO_THROW(watchdog_->while_computing());
  peer_->fail("its disk is full");
  now_ += 1;
  EXPECT_THROW(watchdog_->while_computing(), PeerFailure);
  EXPECT_EQ(wait(1), 1);
  EXPECT_EQ(said_, "while resting: rank 1 failed");
}

TEST_F(WatchdogTest, ASilentPeerEndsAWaitAfterTheTimeoutAndIsNamed) {
  peer_->set_doing("computing 1F3");
  EXPECT_EQ(wait(30), 12) << "seen in the first second, silent for more than ten after it";
  EXPECT_NE(said_.find("while resting: rank 1 (process " + std::to_string(getpid()) + " on host " + host_name() +
                       ") shows no sign of life for 11 s; it was computing 1F3"),
            std::string::npos)
      << said_;
}

TEST_F(WatchdogTest, WhoComputesWaitsForNobody) {
  for (int second = 0; second < 2000; ++second) {
    now_ += 1;
    ASSERT_NO_THROW(watchdog_->while_computing());
  }
}

TEST_F(WatchdogTest, OneThatReadsFilesMayTakeItsTime) {
  peer_->set_stepping(false);
  EXPECT_FALSE(wait(600));
  EXPECT_EQ(wait(10), 2);
  EXPECT_NE(said_.find("rank 1"), std::string::npos) << said_;
}

TEST_F(WatchdogTest, AnEndlessPeerIsWaitedForTenMinutes) {
  EXPECT_EQ(wait(700, /*peer_beats=*/true), 601);
  EXPECT_EQ(said_, "no progress for 600 s while resting");
}

TEST_F(WatchdogTest, OneThatHasFinishedIsNotWatched) {
  peer_->finish();
  EXPECT_FALSE(wait(60));
}

TEST_F(WatchdogTest, TimeInWhichTheProcessDidNotRunDoesNotCount) {
  EXPECT_FALSE(wait(2));
  now_ += 5000;  // suspended
  EXPECT_NO_THROW(watchdog_->while_waiting());
  EXPECT_FALSE(wait(8));
  EXPECT_TRUE(wait(2));
}

}  // namespace
}  // namespace train_gpt
