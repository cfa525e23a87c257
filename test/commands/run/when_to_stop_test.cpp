// When a run has to stop, and when a checkpoint is due, from what steps and checkpoints took.
#include "commands/run/stopping.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "pipeline/train/state_file.h"
#include "test/commands/program.h"

namespace train_gpt::test {
namespace {

std::string wish(const Stopping& stopping) { return stopping.read(stopping.votes(), "").stop; }

TEST(Stopping, LeavesTimeForAnotherStepAndItsCheckpoint) {
  const Folder folder;
  RunOptions run;
  run.output = folder.path();
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

// A run of steps of one second on a clock of its own. still(k): the seconds that training stands still for its k-th
// checkpoint. Returns the times at which checkpoints begin.
std::vector<double> checkpoint_times(double every, double until, const std::function<double(std::size_t)>& still) {
  RunOptions run;
  run.checkpoint_seconds = every;
  double now = 1000;  // the clock's origin means nothing
  Stopping stopping(run, /*first=*/true, now, [&] { return now; });
  std::vector<double> times;
  while (now < 1000 + until) {
    now += 1;
    stopping.step_took(1);
    if (!stopping.read(stopping.votes(), "").checkpoint) continue;
    const double begin = now;
    stopping.checkpoint_begins();
    now += still(times.size());
    stopping.checkpoint_took(now - begin, now - begin);
    times.push_back(begin - 1000);
  }
  return times;
}

TEST(Stopping, CheckpointsComeAsOftenAsIsAskedFor) {
  const auto nothing = [](std::size_t) { return 0.0; };
  EXPECT_EQ(checkpoint_times(10, 45, nothing), (std::vector<double>{10, 20, 30, 40}));
  EXPECT_EQ(checkpoint_times(900, 3000, [](std::size_t) { return 18.0; }), (std::vector<double>{900, 1800, 2700}))
      << "18 s are a fiftieth of 900";
}

TEST(Stopping, CheckpointsTakeAFiftiethOfTheTime) {
  // After one of 20 s the next comes a thousand seconds later, whatever is asked for.
  EXPECT_EQ(checkpoint_times(10, 3000, [](std::size_t) { return 20.0; }), (std::vector<double>{10, 1010, 2010}));
  EXPECT_EQ(checkpoint_times(10, 300, [](std::size_t k) { return k == 1 ? 3.0 : 0.0; }),
            (std::vector<double>{10, 20, 170, 180, 190, 200, 210, 220, 230, 240, 250, 260, 270, 280, 290, 300}))
      << "the pace follows what the last one took";
  double written = 0;
  const auto still = [&](std::size_t k) {
    const double took = 1 + static_cast<double>(k * 7 % 13);
    written += took;
    return took;
  };
  const std::vector<double> times = checkpoint_times(5, 100000, still);
  ASSERT_GT(times.size(), 100U);
  EXPECT_LE(written, 0.02 * 100000 + 13) << "all but the last, for which training has yet to go on";
  EXPECT_GE(written, 0.0195 * 100000) << "that time may be used";
}

TEST(Stopping, ARequestIsFollowedOnce) {
  const Folder folder;
  RunOptions run;
  run.output = folder.path();
  Stopping stopping(run, /*first=*/true, monotonic_seconds());
  EXPECT_FALSE(stopping.read(stopping.votes(), "").checkpoint);
  std::ofstream{request_file(folder.path())};
  EXPECT_TRUE(stopping.read(stopping.votes(), "").checkpoint);
  stopping.checkpoint_begins();
  EXPECT_FALSE(stopping.read(stopping.votes(), "").checkpoint);
}

TEST(Stopping, WhatCameFirstStays) {
  const RunOptions run;
  const Stopping stopping(run, /*first=*/true, monotonic_seconds());
  EXPECT_EQ(stopping.read(stopping.votes(), "SIGUSR1").stop, "SIGUSR1");
}

}  // namespace
}  // namespace train_gpt::test
