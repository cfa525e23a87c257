// When a run has to stop, and when a checkpoint is due, from what steps and checkpoints took.
#include "commands/run/stopping.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "pipeline/train/state_file.h"
#include "test/commands/program.h"

namespace train_gpt::test {
namespace {

std::string wish(const Stopping& stopping) { return stopping.read(stopping.votes(), "").stop; }

TEST(Stopping, LeavesTimeForAnotherStepAndItsCheckpoint) {
  RunOptions run;
  run.time_limit = 1000;
  for (const auto& [passed, stops] : {std::pair{900.0, false}, std::pair{970.0, true}}) {
    Stopping stopping(run, /*first=*/true, monotonic_seconds() - passed);
    EXPECT_EQ(wish(stopping), "");
    stopping.step_took(10);
    stopping.checkpoint_took(5, 20);  // twice 30 s: the last moment is after 940 s
    EXPECT_EQ(wish(stopping), stops ? "--time-limit" : "") << passed;
  }
  const Stopping late(run, /*first=*/true, monotonic_seconds() - 1001);
  EXPECT_EQ(wish(late), "--time-limit");
  const Stopping other(run, /*first=*/false, monotonic_seconds() - 1001);
  EXPECT_EQ(wish(other), "") << "one rank looks at the clock";
}

TEST(Stopping, CheckpointsTakeAFiftiethOfTheTime) {
  RunOptions run;
  run.checkpoint_seconds = 1e-9;
  Stopping stopping(run, /*first=*/true, monotonic_seconds());
  EXPECT_TRUE(stopping.read(stopping.votes(), "").checkpoint);
  stopping.checkpoint_took(100, 100);
  EXPECT_FALSE(stopping.read(stopping.votes(), "").checkpoint) << "before 5000 s have passed";
}

TEST(Stopping, ARequestIsFollowedOnce) {
  const Folder folder;
  RunOptions run;
  run.output = folder.path();
  Stopping stopping(run, /*first=*/true, monotonic_seconds());
  EXPECT_FALSE(stopping.read(stopping.votes(), "").checkpoint);
  std::ofstream{request_file(folder.path())};
  EXPECT_TRUE(stopping.read(stopping.votes(), "").checkpoint);
  stopping.checkpoint_took(0, 0);
  EXPECT_FALSE(stopping.read(stopping.votes(), "").checkpoint);
}

TEST(Stopping, WhatCameFirstStays) {
  const RunOptions run;
  const Stopping stopping(run, /*first=*/true, monotonic_seconds());
  EXPECT_EQ(stopping.read(stopping.votes(), "SIGUSR1").stop, "SIGUSR1");
}

}  // namespace
}  // namespace train_gpt::test
