// What a run on the timed device keeps of its steps in records.bin.
#include <gtest/gtest.h>

#include <filesystem>

#include "pipeline/measure/records_file.h"
#include "test/commands/program.h"

namespace train_gpt::test {
namespace {

// Two ranks with two micro-batches: F0 F1 B0 B1, and F0 B0 F1 B1. I takes a quarter of a B.
const std::string kRun =
    "train --device timed --stages 2 --schedule 1f1b --micro-batches 2 --cost-forward 2 --cost-input 1 --cost-weight 3 "
    "--layers 2 --heads 2 --hidden 32 --vocab 300 --seq-len 16 --micro-batch-size 1 --steps 20";
constexpr std::int64_t kNumbers = 2 * 2 + 2 * 3;                                           // of a rank in a step
constexpr std::int64_t kStepBytes = 2 * (3 * 8 + kNumbers * std::int64_t{sizeof(float)});  // as ranks hand them on

TEST(Recorder, KeepsBeginAndEndOfEveryActionAndTheMiddleOfABackward) {
  const Folder folder;
  const ProgramRun run = run_program(2, kRun + " --output " + (folder / "run"));
  ASSERT_EQ(run.status, 0) << run.output;
  const Records records = read_records(folder / "run/records.bin");
  ASSERT_EQ(records.steps.size(), 20U);
  double end_of_step_before[2] = {0, 0};
  for (std::size_t s = 0; s < records.steps.size(); ++s) {
    const StepRecord& step = records.steps[s];
    EXPECT_EQ(step.step, static_cast<std::int64_t>(s));
    ASSERT_EQ(step.ranks.size(), 2U);
    for (std::size_t r = 0; r < 2; ++r) {
      const StepRecord::Rank& rank = step.ranks[r];
      ASSERT_EQ(rank.numbers.size(), static_cast<std::size_t>(kNumbers));
      EXPECT_GT(rank.base, end_of_step_before[r]) << "step " << s << ", rank " << r;
      EXPECT_GE(step.ms, rank.numbers.back());
      const std::string order = r == 0 ? "FFBB" : "FBFB";
      double before = 0;
      std::size_t at = 0;
      for (const char op : order) {
        const double begin = rank.numbers[at++];
        const double middle = op == 'B' ? rank.numbers[at++] : 0;
        const double end = rank.numbers[at++];
        EXPECT_GE(begin, before);
        EXPECT_GE(end - begin, op == 'F' ? 1.99 : 3.99);
        if (op == 'B') {
          EXPECT_NEAR(middle, begin + 0.25 * (end - begin), 0.01);
        }
        before = end;
      }
      end_of_step_before[r] = rank.base + before;
    }
  }
}

TEST(Recorder, TakesNoMoreThanItMay) {
  const Folder folder;
  const auto recorded = [&](const std::string& name, std::int64_t bytes) {
    const std::string output = folder / name;
    const ProgramRun run = run_program(2, kRun + " --output " + output + " --records " + std::to_string(bytes));
    EXPECT_EQ(run.status, 0) << run.output;
    const bool kept = std::filesystem::exists(output + "/records.bin");
    EXPECT_EQ(count(run.output, "no records of the steps are kept"), kept ? 0 : 1) << run.output;
    return kept;
  };
  EXPECT_TRUE(recorded("enough", 2 * kStepBytes));
  EXPECT_FALSE(recorded("too-little", 2 * kStepBytes - 1));
}

}  // namespace
}  // namespace train_gpt::test
