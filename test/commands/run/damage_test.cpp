// A bit that flipped somewhere in a run's files: they are refused, passed over, or read as before. (Every byte of the
// text of a manifest takes every value in checkpoint_manifest_test.cpp.) That a refusal takes no time to speak of is
// counted: in allocations and in bytes read.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "commands/report/report.h"
#include "commands/run/best_model.h"
#include "commands/run/checkpoints.h"
#include "commands/run/file_identity.h"
#include "commands/run/run_folder.h"
#include "commands/run/run_lock.h"
#include "data/token_file.h"
#include "kernels/local_communicator.h"
#include "model/checkpoint.h"
#include "pipeline/train/state_file.h"
#include "test/commands/program.h"
#include "test/counted_allocations.h"
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

  // Calls `look` for every value but its own of each of the first `bytes` bytes.
  template <class Look>
  void take_every_value(const std::string& path, std::int64_t bytes, const Look& look) {
    const std::string whole = read_file(path);
    ASSERT_GE(static_cast<std::int64_t>(whole.size()), bytes) << path;
    const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(file, 0) << path;
    for (std::int64_t at = 0; at < bytes; ++at) {
      for (int change = 1; change < 256; ++change) {
        const auto value = static_cast<char>(whole[static_cast<std::size_t>(at)] ^ change);
        ASSERT_EQ(pwrite(file, &value, 1, at), 1);
        look("byte " + std::to_string(at) + " of " + path + " changed by " + std::to_string(change));
      }
      ASSERT_EQ(pwrite(file, &whole[static_cast<std::size_t>(at)], 1, at), 1);
    }
    close(file);
  }

  FoundCheckpoint newest() const {
    FoundCheckpoint found;
    run_local_ranks(1, [&](Communicator& world) { found = find_checkpoint(world, "latest", folder_ / "out"); });
    return found;
  }

  Folder folder_;
  std::mt19937 random_{20261201};
};

// Bytes that this process has read with system calls so far.
std::int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::int64_t bytes = 0;
  file >> name >> bytes;
  EXPECT_EQ(name, "rchar:");
  return bytes;
}

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

TEST_F(Damage, AManifestIsPassedOverWhereverABitOfItFlipped) {
  const std::string checkpoints = folder_ / "out/checkpoints/", path = checkpoints + "step-4/manifest.json";
  const auto work = [&](FoundCheckpoint& found) {
    const std::int64_t allocated = allocations_of_this_process(), read = bytes_read();
    found = newest();
    return std::pair(allocations_of_this_process() - allocated, bytes_read() - read);
  };
  FoundCheckpoint found;
  work(found);  // what is done once is done
  const auto [allocated, read] = work(found);
  const std::string whole = read_file(path);
  int without_effect = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    write_file(path, damaged.data(), damaged.size());
    const auto [allocated_now, read_now] = work(found);
    EXPECT_LE(allocated_now, allocated + 100) << at;
    EXPECT_LE(read_now, read + 4096) << at;
    if (found.folder == checkpoints + "step-4") {
      EXPECT_EQ(to_json(found.manifest), whole) << at;
      ++without_effect;
      continue;
    }
    EXPECT_EQ(found.folder, checkpoints + "step-2") << at;
    ASSERT_EQ(found.passed_over.size(), 1U) << at;
    EXPECT_NE(found.passed_over[0].find("step-4: manifest.json: it is "), std::string::npos) << found.passed_over[0];
  }
  EXPECT_LE(without_effect, 3) << "white space after the checksum";
  write_file(path, whole.data(), whole.size());
}

// Sizes of a header are believed only when they agree with each other and with the file.
TEST_F(Damage, AHeaderIsRefusedWithLittleWork) {
  int opened = 0;
  const auto try_to = [&](const std::string& what, const auto& open_file) {
    const std::int64_t allocated = allocations_of_this_process(), read = bytes_read();
    try {
      open_file();
      ++opened;
    } catch (const std::invalid_argument&) {
    }
    EXPECT_LE(allocations_of_this_process() - allocated, 100) << what;
    EXPECT_LE(bytes_read() - read, 4096) << what;
  };
  constexpr std::int64_t kModelNumbers = 9, kTokenNumbers = 3;
  const std::string checkpoint = folder_ / "out/checkpoints/step-4/";
  take_every_value(checkpoint + "model.bin", 4 * kModelNumbers,
                   [&](const std::string& what) { try_to(what, [&] { ModelFile(checkpoint + "model.bin"); }); });
  // As many bytes take 2, 4 or 8 heads as the one, and 897 to 1023 ids as the 1009. (Checkpoints have checksums.)
  constexpr int kOfEqualSize = 3 + 126;
  EXPECT_EQ(opened, kOfEqualSize);
  take_every_value(checkpoint + "optimizer.bin", 4 * kModelNumbers, [&](const std::string& what) {
    try_to(what, [&] { OptimizerFile(checkpoint + "optimizer.bin"); });
  });
  EXPECT_EQ(opened, 2 * kOfEqualSize);
  take_every_value(folder_ / "train.bin", 4 * kTokenNumbers,
                   [&](const std::string& what) { try_to(what, [&] { TokenFile(folder_ / "train.bin"); }); });
  EXPECT_EQ(opened, 2 * kOfEqualSize);
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
