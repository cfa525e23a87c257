// A number that is not finite is an error that names the tensor, once; spikes are seen.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "commands/run/spikes.h"
#include "test/commands/log_events.h"
#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

class Numbers : public testing::Test {
 protected:
  Numbers() {
    const std::vector<char> tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
    write_file(folder_ / "train.bin", tokens.data(), tokens.size());
  }
  std::string train(const std::string& more) const {
    return "--train-data " + (folder_ / "train.bin") +
           " --seq-len 8 --micro-batch-size 1 --micro-batches 2 --threads 1 " +
           "--partition uniform --overwrite --output " + (folder_ / "out") + " " + more;
  }
  const std::string sizes_ = " --layers 2 --heads 1 --hidden 8 --vocab 1009 --max-seq-len 8 ";
  Folder folder_;
};

TEST_F(Numbers, AModelFileWithNoneIsRefusedByTheNameOfTheTensor) {
  ASSERT_EQ(run_program(1, train("--steps 1" + sizes_)).status, 0);
  std::string bytes = read_file(folder_ / "out/model.bin");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);  // lnfb is last
  write_file(folder_ / "bad.bin", bytes.data(), bytes.size());
  const std::string init = " --init " + (folder_ / "bad.bin");
  for (const std::string& command :
       {train("--steps 1" + init), "generate --tokens 2" + init,
        "evaluate --seq-len 8 --micro-batches 2 --micro-batch-size 1 --val-data " + (folder_ / "train.bin") + init}) {
    const ProgramRun run = run_program(2, command);
    EXPECT_EQ(run.status, 2) << run.output;
    EXPECT_EQ(count(run.output, "bad.bin: parameter lnfb holds a value that is not finite"), 1) << run.output;
    EXPECT_EQ(count(run.output, "train_gpt: error:"), 1) << run.output;
  }
}

TEST_F(Numbers, ActivationsThatOverflowAreToldFromParameters) {
  ASSERT_EQ(run_program(1, train("--steps 1" + sizes_)).status, 0);
  std::string bytes = read_file(folder_ / "out/model.bin");
  for (std::size_t at = bytes.size() - 16 * sizeof(float); at < bytes.size(); at += sizeof(float)) {
    const float large = at % 8 == 0 ? 3e38F : -3e38F;  // lnfw and lnfb
    std::memcpy(bytes.data() + at, &large, sizeof large);
  }
  write_file(folder_ / "large.bin", bytes.data(), bytes.size());
  const std::string init = " --init " + (folder_ / "large.bin");
  for (const std::string& command :
       {"generate --tokens 2" + init,
        "evaluate --seq-len 8 --micro-batches 2 --micro-batch-size 1 --val-data " + (folder_ / "train.bin") + init}) {
    const ProgramRun run = run_program(2, command);
    EXPECT_EQ(run.status, 1) << run.output;
    EXPECT_EQ(count(run.output, "the loss is not finite, though every parameter is"), 1) << run.output;
  }
}

TEST_F(Numbers, AnExplodingRunEndsOnceOrSkipsAndCounts) {
  const std::string explodes = sizes_ + " --learning-rate 1e38 --grad-clip 0 --lr-schedule constant --steps 9 ";
  for (const std::string step : {"synchronous", "optimistic"}) {
    for (const int skipped : {0, 2}) {
      const ProgramRun run =
          run_program(2, train(explodes + "--optimizer-step " + step + " --max-skipped " + std::to_string(skipped)));
      EXPECT_EQ(run.status, 1) << run.output;
      EXPECT_EQ(count(run.output, "train_gpt: error: step " + std::to_string(1 + skipped) + ": "), 1) << run.output;
      EXPECT_EQ(count(run.output, "error:"), 1) << run.output;
      EXPECT_EQ(count(run.output, "of micro-batch 0 and the gradient of "), 1) << run.output;
      EXPECT_EQ(count(run.output, "skipped: "), skipped) << run.output;
    }
  }
}

TEST(Spikes, AreRisesByManyStandardDeviations) {
  SpikeDetector detector;
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(detector.add(5 + 0.01 * (i % 2), 1 + 0.1 * (i % 2)).spike) << i;
  const SpikeDetector::Scores usual = detector.add(5.02, 1.1);
  ASSERT_TRUE(usual.loss && usual.norm);
  EXPECT_NEAR(*usual.loss, (5.02 - 5.005) / (1e-3 * 5.005), 1e-6);  // 15 values each of 5.00 and 5.01
  EXPECT_NEAR(*usual.norm, 1, 1e-6);
  EXPECT_TRUE(detector.add(5.0, 9.0).spike);
  EXPECT_TRUE(detector.add(7.0, 1.0).spike);
  EXPECT_FALSE(detector.add(1.0, 0.1).spike) << "falling is no spike";
  EXPECT_FALSE(detector.add(std::nan(""), 1).spike);
}

TEST(Spikes, WhatLastsBecomesUsual) {
  SpikeDetector detector;
  for (int i = 0; i < 40; ++i) detector.add(1, 1);
  std::size_t spikes = 0;
  for (int i = 0; i < 100; ++i) spikes += detector.add(2, 1).spike ? 1 : 0;
  EXPECT_EQ(spikes, SpikeDetector::kLeast);
}

}  // namespace
}  // namespace train_gpt::test
