// A bit that flipped somewhere in a run's files: they are refused, passed over, or read as before. (Every byte of a
// manifest takes every value in checkpoint_manifest_test.cpp.)
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "commands/report/report.h"
#include "commands/run/best_model.h"
#include "commands/run/checkpoints.h"
#include "commands/run/file_identity.h"
#include "commands/run/run_folder.h"
#include "commands/run/run_lock.h"
#include "kernels/local_communicator.h"
#include "pipeline/train/state_file.h"
#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

namespace fs = std::filesystem;

constexpr int kFlips = 250;  // of each kind: 1,000 in all

class Damage : public testing::Test {
 protected:
  Damage() {
    const std::vector<char> tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
    write_file(folder_ / "train.bin", tokens.data(), tokens.size());
    const ProgramRun run = run_program(
        2,
        "--train-data train.bin --val-data train.bin --val-every 2 --val-batches 1 --layers 1 --heads 1 --hidden 8 "
        "--vocab 1009 --max-seq-len 8 --seq-len 8 --micro-batch-size 1 --micro-batches 2 --threads 1 --steps 4 "
        "--checkpoint-every 2 --output out",
        {.environment = "-C " + folder_.path()});
    EXPECT_EQ(run.status, 0) << run.output;
  }

  // Calls `look` kFlips times, each time with another bit of the file flipped; the file is whole again afterwards.
  template <class Look>
  void flip(const std::string& path, const Look& look) {
    const std::string whole = read_file(path);
    ASSERT_FALSE(whole.empty()) << path;
    for (int i = 0; i < kFlips; ++i) {
      std::string damaged = whole;
      const std::size_t at = random_() % whole.size();
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random_() % 8));
      write_file(path, damaged.data(), damaged.size());
      look("byte " + std::to_string(at) + " of " + path);
    }
    write_file(path, whole.data(), whole.size());
  }

  FoundCheckpoint newest() const {
    FoundCheckpoint found;
    run_local_ranks(1, [&](Communicator& world) { found = find_checkpoint(world, "latest", folder_ / "out"); });
    return found;
  }

  Folder folder_;
  std::mt19937 random_{20261201};
};

TEST_F(Damage, ACheckpointIsPassedOverWhereverABitOfItFlipped) {
  const std::string checkpoints = folder_ / "out/checkpoints/";
  ASSERT_EQ(newest().folder, checkpoints + "step-4");
  for (const char* file : {"model.bin", "optimizer.bin"}) {
    flip(checkpoints + "step-4/" + file, [&](const std::string& what) {
      const FoundCheckpoint found = newest();
      EXPECT_EQ(found.folder, checkpoints + "step-2") << what;
      ASSERT_EQ(found.passed_over.size(), 1U) << what;
      EXPECT_NE(found.passed_over[0].find(std::string("step-4: ") + file + " has the checksum"), std::string::npos)
          << found.passed_over[0];
    });
  }
  EXPECT_EQ(newest().folder, checkpoints + "step-4");
}

TEST_F(Damage, ATokenFileIsAnotherOneWhereverABitOfItFlipped) {
  const FileIdentity whole = identity_of(folder_ / "train.bin");
  flip(folder_ / "train.bin",
       [&](const std::string& what) { EXPECT_FALSE(identity_of(folder_ / "train.bin") == whole) << what; });
}

TEST_F(Damage, RecordsLogsAndStatesAreReadOrPassedOver) {
  const std::string out = folder_ / "out";
  flip(out + "/best/validation.json", [&](const std::string& what) {
    const auto record = best_record(out);
    EXPECT_TRUE(!record || record->step >= 0 || record->loss == record->loss) << what;
  });
  flip(out + "/log.jsonl", [&](const std::string& what) {
    const std::string page = html_report(read_log(out + "/log.jsonl"), RunCondition::over);
    EXPECT_NE(page.find("</html>"), std::string::npos) << what;
    cut_log(out + "/log.jsonl", 2);
  });
  flip(out + "/state.0", [&](const std::string&) { read_states(out); });
  flip(out + "/run.json",
       [&](const std::string& what) { EXPECT_LE(RunLock::own(out).earlier().run.size(), 16U) << what; });
}

}  // namespace
}  // namespace train_gpt::test
