// The system takes its data, its folder or the room on its disk away from a living run. Each ends with one message that
// names the file, and with what could be saved.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "test/commands/log_events.h"
#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

namespace fs = std::filesystem;

class SystemLimits : public testing::Test {
 protected:
  SystemLimits() {
    const std::vector<char> tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
    write_file(folder_ / "train.bin", tokens.data(), tokens.size());
  }
  static std::vector<std::string> endless(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"--train-data",    "train.bin", "--layers",           "1",
                                      "--heads",         "1",         "--hidden",           "8",
                                      "--vocab",         "1009",      "--max-seq-len",      "8",
                                      "--seq-len",       "8",         "--micro-batch-size", "1",
                                      "--micro-batches", "2",         "--threads",          "1",
                                      "--steps",         "1000000",   "--output",           "out",
                                      "--inject-delay",  "action=1",  "--partition",        "uniform",
                                      "--lr-schedule",   "constant"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Folder folder_;
};

TEST_F(SystemLimits, ATokenFileThatIsCutOffIsNamedOnce) {
  StartedProgram run(2, endless({"--checkpoint-every", "5"}), folder_.path());
  ASSERT_EQ(run.ranks_that_step(folder_ / "out").size(), 2U) << run.result().output;
  fs::resize_file(folder_ / "train.bin", 1030);
  const ProgramRun ended = run.result();
  EXPECT_EQ(ended.status, 1) << ended.output;
  EXPECT_EQ(count(ended.output, "token file 'train.bin' was cut off"), 1) << ended.output;
  EXPECT_EQ(events(read_file(folder_ / "out/log.jsonl"), "failure").size(), 1U);
}

TEST_F(SystemLimits, AFolderThatIsRemovedIsWrittenAnew) {
  StartedProgram run(2, endless(), folder_.path());
  ASSERT_EQ(run.ranks_that_step(folder_ / "out").size(), 2U) << run.result().output;
  fs::rename(folder_ / "out", folder_ / "gone");
  const ProgramRun ended = run.result();
  EXPECT_EQ(ended.status, 1) << ended.output;
  EXPECT_EQ(count(ended.output, "train_gpt: error: out: the folder was removed while the run lived"), 1)
      << ended.output;
  const std::string log = read_file(folder_ / "out/log.jsonl");
  const std::string step = std::to_string(events(log, "step").size());
  EXPECT_EQ(events(log, "start").size(), 1U);
  EXPECT_EQ(read_file(folder_ / "out/model.bin"), read_file(folder_ / ("out/checkpoints/step-" + step + "/model.bin")));
  fs::remove_all(folder_ / "gone");
  std::vector<std::string> words = endless({"--time-limit", "1s", "--resume", "latest"});
  StartedProgram next(2, words, folder_.path());
  const ProgramRun resumed = next.result();
  EXPECT_EQ(count(resumed.output, "resumed at step " + step), 1) << resumed.output;
}

TEST_F(SystemLimits, FilesThatAreTooLargeAreKnownBeforeTheFirstStep) {
  const std::string sizes =
      " --train-data train.bin --layers 2 --heads 4 --hidden 256 --vocab 1009 --max-seq-len 8 --seq-len 8 --threads 1";
  const ProgramRun run = run_program(0, "train --steps 2 --output out" + sizes,
                                     {.environment = "-C " + folder_.path() + " prlimit --fsize=9000000"});
  EXPECT_EQ(run.status, 2) << run.output;
  EXPECT_EQ(count(run.output, "(ulimit -f) is 8.6 MiB"), 1) << run.output;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

// A disk of 16 MiB that something else fills meanwhile.
TEST_F(SystemLimits, AFullDiskLeavesTheNewestCheckpoint) {
  const std::string disk = folder_ / "disk";
  fs::create_directories(disk);
  if (std::system(("mount -t tmpfs -o size=16m none " + disk + " 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "skipped: mounting a small disk needs root";
  }
  {
    std::vector<std::string> words = endless({"--checkpoint-every", "3", "--keep", "2"});
    words[23] = "disk/out";
    StartedProgram run(2, words, folder_.path());
    EXPECT_EQ(run.ranks_that_step(disk + "/out").size(), 2U) << run.result().output;
    while (!run.is_over() && read_file(folder_ / "printed").find("checkpoint written to") == std::string::npos) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::system(("dd if=/dev/zero bs=4k of=" + disk + "/hog 2>/dev/null").c_str());
    const ProgramRun ended = run.result();
    EXPECT_EQ(ended.status, 1) << ended.output;
    EXPECT_EQ(count(ended.output, "train_gpt: error: "), 1) << ended.output;
    const std::string error = ended.output.substr(std::min(ended.output.size(), ended.output.find("error: ")));
    EXPECT_NE(error.find("disk/out/"), std::string::npos) << error;
    EXPECT_NE(error.find("No space left on device"), std::string::npos) << error;
    for (const auto& entry : fs::directory_iterator(disk + "/out/checkpoints")) {
      EXPECT_TRUE(fs::exists(entry.path() / "manifest.json")) << entry.path() << " is half written";
    }
    fs::remove(disk + "/hog");
    StartedProgram next(2, words, folder_.path());
    EXPECT_EQ(next.result().status, 2) << "a run is in this folder";
    words.insert(words.end(), {"--resume", "latest", "--time-limit", "1s"});
    StartedProgram resumed(2, words, folder_.path());
    EXPECT_EQ(resumed.result().status, 75);
  }
  std::system(("umount " + disk).c_str());
}

}  // namespace
}  // namespace train_gpt::test
