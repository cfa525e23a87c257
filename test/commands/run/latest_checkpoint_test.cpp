// Which checkpoint a run goes on from, what it is compared with, and which others stay.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "commands/run/checkpoint_manifest.h"
#include "test/commands/log_events.h"
#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

class LatestCheckpoint : public testing::Test {
 protected:
  LatestCheckpoint() {
    const std::vector<char> tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
    write_file(folder_ / "train.bin", tokens.data(), tokens.size());
  }

  ProgramRun train(int steps, const std::string& more) const {
    return run_program(1, "--train-data " + (folder_ / "train.bin") +
                              " --layers 1 --heads 1 --hidden 16 --vocab 1009 --max-seq-len 16 --seq-len 16 "
                              "--micro-batch-size 1 --threads 1 --lr-schedule constant --output " +
                              (folder_ / "out") + " --steps " + std::to_string(steps) + " " + more);
  }
  std::string checkpoint(int step) const { return folder_ / ("out/checkpoints/step-" + std::to_string(step)); }
  Json manifest(int step) const { return Json::parse(read_file(checkpoint(step) + "/manifest.json")); }
  void change(int step, const std::function<void(CheckpointManifest&)>& changed) const {
    CheckpointManifest manifest = manifest_from_json(read_file(checkpoint(step) + "/manifest.json"));
    changed(manifest);
    const std::string text = to_json(manifest);
    write_file(checkpoint(step) + "/manifest.json", text.data(), text.size());
  }

  Folder folder_;
};

TEST_F(LatestCheckpoint, IsTheFurthestOnNotTheLastByName) {
  ASSERT_EQ(train(10, "--micro-batches 2 --checkpoint-every 9").status, 0);
  const ProgramRun run = train(12, "--micro-batches 2 --checkpoint-every 0 --keep 2 --resume latest");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(count(run.output, "resumed at step 10"), 1) << run.output;
  // The two that are furthest on stay of three.
  EXPECT_FALSE(fs::exists(checkpoint(9)));
  EXPECT_TRUE(fs::exists(checkpoint(10)));
  EXPECT_GT(manifest(12).at("counter"), manifest(10).at("counter"));
}

TEST_F(LatestCheckpoint, CheckpointsOfAnotherRunStay) {
  ASSERT_EQ(train(4, "--micro-batches 2 --checkpoint-every 2").status, 0);
  change(2, [](CheckpointManifest& manifest) { manifest.run += "-of-another"; });
  ASSERT_EQ(train(6, "--micro-batches 2 --checkpoint-every 0 --keep 1 --resume " + checkpoint(4)).status, 0);
  EXPECT_TRUE(fs::exists(checkpoint(2)));
  EXPECT_FALSE(fs::exists(checkpoint(4)));
  EXPECT_TRUE(fs::exists(checkpoint(6)));
}

// The files have the checksums of the manifest, the parameters in them another hash.
TEST_F(LatestCheckpoint, OtherParametersThanTheManifestSays) {
  ASSERT_EQ(train(4, "--micro-batches 2 --checkpoint-every 2").status, 0);
  const std::string hash = manifest(4).at("parameter_hash");
  const std::string other = hash == "0123456789abcdef" ? "fedcba9876543210" : "0123456789abcdef";
  change(4, [&](CheckpointManifest& manifest) { manifest.parameter_hash = other; });
  const ProgramRun run = train(6, "--micro-batches 2 --resume " + checkpoint(4));
  EXPECT_NE(run.status, 0) << run.output;
  EXPECT_EQ(count(run.output, "have the hash " + hash + ", its manifest says " + other), 1) << run.output;
}

// As many rows per step, summed in another order.
TEST_F(LatestCheckpoint, ChangedReplicasAndSettingsAreSaid) {
  ASSERT_EQ(train(2, "--micro-batches 4 --beta2 0.9").status, 0);
  const std::string more = "--steps 4 --micro-batches 2 --data-parallel 2 --beta2 0.95 --resume latest";
  const ProgramRun run = run_program(2, "--train-data " + (folder_ / "train.bin") +
                                            " --layers 1 --heads 1 --hidden 16 --vocab 1009 --max-seq-len 16 --seq-len "
                                            "16 --micro-batch-size 1 --threads 1 --lr-schedule constant --output " +
                                            (folder_ / "out") + " " + more);
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(count(run.output, "groups of micro-batches was 1 when the checkpoint was written and is 2 now"), 1)
      << run.output;
  EXPECT_EQ(count(run.output, "--beta2 was 0.9 when the checkpoint was written and is 0.95 now"), 1) << run.output;
}

}  // namespace
}  // namespace train_gpt::test
