// The manifest of a checkpoint protects itself, and knows a run by what determines it.
#include "commands/run/checkpoint_manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "test/refused.h"

namespace train_gpt::test {
namespace {

CheckpointManifest example() {
  Options options;
  options.run.steps = 100;
  CheckpointManifest manifest =
      manifest_of_run(options, {}, {.rows = 2}, 40, {{"a.bin", 1000, "aaaa"}, {"b.bin", 1000, "bbbb"}}, "rules 1");
  manifest.step = 12;
  manifest.counter = 3;
  manifest.run = "0123456789abcdef";
  manifest.loss = 0.1;
  manifest.parameter_hash = "fedcba9876543210";
  manifest.files = {{"model.bin", 4000, "1111"}, {"optimizer.bin", 8000, "2222"}};
  return manifest;
}

TEST(CheckpointManifest, ComesBackFromItsText) {
  const CheckpointManifest read = manifest_from_json(to_json(example()));
  EXPECT_EQ(to_json(read), to_json(example()));
  EXPECT_EQ(read.step, 12);
  EXPECT_EQ(read.loss, 0.1);
  EXPECT_EQ(read.data, example().data);
}

// All 256 values at each byte.
TEST(CheckpointManifest, AnyOtherByteIsRefusedOrWithoutEffect) {
  const std::string text = to_json(example());
  std::size_t without_effect = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = text;
      changed[at] = static_cast<char>(value);
      if (changed == text) continue;
      try {
        ASSERT_EQ(to_json(manifest_from_json(changed)), text) << "byte " << at << " as " << value;
        ++without_effect;
      } catch (const std::invalid_argument&) {
      }
    }
  }
  EXPECT_LT(without_effect, 40U) << "white space after the checksum";
}

TEST(CheckpointManifest, CutsAndInsertionsAreRefused) {
  const std::string text = to_json(example());
  for (std::size_t size = 0; size + 2 < text.size(); ++size) {
    EXPECT_THROW(manifest_from_json(text.substr(0, size)), std::invalid_argument) << size;
  }
  for (std::size_t at = 0; at < text.size() - 3; at += 7) {
    EXPECT_THROW(manifest_from_json(text.substr(0, at) + " " + text.substr(at)), std::invalid_argument) << at;
  }
}

// Older checkpoints had neither checksum nor counter, run, arithmetic, data.
TEST(CheckpointManifest, VersionOneIsRead) {
  auto json = nlohmann::ordered_json::parse(to_json(example()));
  for (const char* later : {"checksum", "counter", "run", "arithmetic", "data", "loss"}) json.erase(later);
  json["version"] = 1;
  const CheckpointManifest old = manifest_from_json(json.dump(2) + "\n");
  EXPECT_EQ(old.step, 12);
  EXPECT_EQ(old.run, "");
  require_same_run(old, example(), 100, "c");
  EXPECT_TRUE(changed_settings(old, example()).empty());
  json["version"] = 2;
  EXPECT_THROW(manifest_from_json(json.dump(2)), std::invalid_argument) << "the checksum was taken away";
}

TEST(CheckpointManifest, TextOfAnyBytesIsRefusedWithoutQuotingThem) {
  for (const std::string& text : {std::string("\xff\xfe{"), std::string("{\"format\": \"\x1b[31m\"}"), std::string(),
                                  std::string("[1]"), std::string("{\"step\": -1}"), std::string(300000, '[')}) {
    try {
      manifest_from_json(text);
      FAIL() << "was read";
    } catch (const std::invalid_argument& error) {
      for (const char c : std::string(error.what())) EXPECT_TRUE(c >= ' ' && c < 127);
    }
  }
}

TEST(CheckpointManifest, LaterIsFurtherOnWhateverTheClockSays) {
  CheckpointManifest a = example(), b = example();
  a.written = 2e9;
  b.step = 13;
  EXPECT_TRUE(b.progress(a) > 0);
  b.step = 12;
  b.counter = 4;
  EXPECT_TRUE(b.progress(a) > 0);
}

TEST(CheckpointManifest, OtherTokenFilesAreRefusedByName) {
  const CheckpointManifest saved = example();
  CheckpointManifest now = example();
  std::swap(now.data[0], now.data[1]);
  EXPECT_REFUSED(require_same_run(saved, now, 100, "c"), "token file 1 of --train-data is b.bin");
  now = example();
  now.data[1].checksum = "cccc";
  EXPECT_REFUSED(require_same_run(saved, now, 100, "c"), "token file 2 of --train-data is b.bin");
  now.data.pop_back();
  EXPECT_REFUSED(require_same_run(saved, now, 100, "c"), "names 1 token files, but the checkpoint has 2");
  now = example();
  now.data[0].name = "moved.bin";
  require_same_run(saved, now, 100, "c");
}

TEST(CheckpointManifest, AnotherOrderOfSamplesIsRefusedByTheNameOfTheOption) {
  CheckpointManifest now = example();
  now.order["seed"] = 5;
  EXPECT_REFUSED(require_same_run(example(), now, 100, "c"), "--seed is 5, but the checkpoint has ");
  now = example();
  now.order["shuffle"] = 0;
  EXPECT_REFUSED(require_same_run(example(), now, 100, "c"), "--shuffle is false, but the checkpoint has true");
  now = example();
  now.model.layers += 1;
  EXPECT_REFUSED(require_same_run(example(), now, 100, "c"), "--layers is ");
}

// d replicas sum as d groups do: a change is reported only where the order of sums changes.
TEST(CheckpointManifest, ReplicasCountAsGroupsOfMicroBatches) {
  const auto run = [](int replicas, int groups) {
    return manifest_of_run(Options{}, {},
                           {.rows = 2, .micro_batches = 12 / replicas, .replicas = replicas, .groups = groups}, 40, {},
                           "rules 1");
  };
  EXPECT_TRUE(changed_settings(run(2, 4), run(1, 4)).empty());
  const std::vector<std::string> lines = changed_settings(run(1, 1), run(3, 3));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("groups of micro-batches was 1 when the checkpoint was written and is 3 in rank order now"),
            std::string::npos)
      << lines[0];
}

TEST(CheckpointManifest, AFinishedCurveIsNotStretched) {
  CheckpointManifest saved = example();
  saved.step = 100;
  CheckpointManifest now = example();
  require_same_run(saved, now, 100, "c");
  now.training["steps"] = "200";
  EXPECT_REFUSED(require_same_run(saved, now, 200, "c"), "the run is finished");
  now.training["lr-schedule"] = "constant";
  require_same_run(saved, now, 200, "c");
  EXPECT_REFUSED(require_same_run(saved, now, 99, "c"), "more than --steps 99");
}

TEST(CheckpointManifest, AnotherOptimizerIsRefused) {
  CheckpointManifest saved = example();
  CheckpointManifest now = saved;
  saved.training.erase("optimizer");  // as before there was a choice
  require_same_run(saved, now, 100, "c");
  now.training["optimizer"] = "muon";
  EXPECT_REFUSED(require_same_run(saved, now, 100, "c"), "--optimizer is muon, but the checkpoint has adamw");
  saved.training["optimizer"] = "muon";
  require_same_run(saved, now, 100, "c");
}

TEST(CheckpointManifest, ChangesOfBitsAreSaid) {
  CheckpointManifest now = example();
  EXPECT_TRUE(changed_settings(example(), now).empty());
  now.arithmetic = "rules 2";
  now.training["micro-batch-size"] = "1";
  const std::vector<std::string> lines = changed_settings(example(), now);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[0].find("the arithmetic was rules 1 when the checkpoint was written and is rules 2 now"),
            std::string::npos);
  EXPECT_NE(lines[1].find("--micro-batch-size was 2"), std::string::npos);
}

}  // namespace
}  // namespace train_gpt::test
