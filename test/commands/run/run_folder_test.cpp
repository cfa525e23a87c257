// Who owns an output folder: one run at a time, and only what it made.
#include "commands/run/run_folder.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "test/commands/log_events.h"
#include "test/commands/program.h"
#include "test/golden_formula.h"
#include "test/refused.h"

namespace train_gpt::test {
namespace {

namespace fs = std::filesystem;

class RunFolders : public testing::Test {
 protected:
  RunFolders() {
    const std::vector<char> tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
    write_file(folder_ / "train.bin", tokens.data(), tokens.size());
  }
  // The program runs in folder_, where out/ is made.
  ProgramRun run(int ranks, const std::string& arguments, const std::string& environment = "") const {
    return run_program(ranks, arguments, {.environment = "-C " + folder_.path() + " " + environment});
  }
  static std::string train(int steps, const std::string& more = "") {
    return "--train-data train.bin --layers 1 --heads 1 --hidden 8 --vocab 1009 --max-seq-len 8 --seq-len 8 "
           "--micro-batch-size 1 --micro-batches 2 --threads 1 --steps " +
           std::to_string(steps) + " " + more;
  }
  std::string hash(const std::string& output) const {
    return events(read_file(folder_ / (output + "/log.jsonl")), "end").at(0).at("parameter_hash");
  }

  Folder folder_;
};

TEST_F(RunFolders, WithoutAnOutputEachRunHasOneOfItsOwnAndLatestIsTheNewest) {
  for (const char* name : {"run-1", "run-2"}) {
    const ProgramRun one = run(2, train(1));
    ASSERT_EQ(one.status, 0) << one.output;
    EXPECT_NE(one.output.find(std::string(" in out/") + name), std::string::npos) << one.output;
    EXPECT_EQ(fs::read_symlink(folder_ / "out/latest"), name);
  }
  fs::create_directories(folder_ / "out/run-7");
  fs::create_directories(folder_ / "out/run-9-good");
  EXPECT_EQ(run(1, train(1)).status, 0);
  EXPECT_EQ(names_in(folder_ / "out"),
            (std::set<std::string>{"latest", "run-1", "run-2", "run-7", "run-8", "run-9-good"}));
  const ProgramRun state = run(0, "status");
  EXPECT_EQ(state.status, 0) << state.output;
  EXPECT_EQ(count(state.output, "finished"), 2) << state.output;
  EXPECT_EQ(run(1, train(1), "SLURM_JOB_ID=4711").status, 0);
  EXPECT_EQ(fs::read_symlink(folder_ / "out/latest"), "job-4711");
}

TEST_F(RunFolders, WhatDoesNotBeginLeavesNothing) {
  EXPECT_EQ(run(2, "--train-data none.bin --layers 1 --heads 1 --hidden 8").status, 2);
  EXPECT_EQ(names_in(folder_ / "out"), std::set<std::string>{});
  EXPECT_EQ(run(1, train(1, "--output other --vocab 7")).status, 2);
  EXPECT_FALSE(fs::exists(folder_ / "other"));
  for (const char* refused :
       {"--resume latest", "--resume auto", "--overwrite", "--overwrite --resume auto --output x"}) {
    const ProgramRun bad = run(1, train(1, refused));
    EXPECT_EQ(bad.status, 2) << bad.output;
    EXPECT_EQ(count(bad.output, "train_gpt: error: --"), 1) << bad.output;
  }
  EXPECT_EQ(names_in(folder_ / "out"), std::set<std::string>{});
}

// Every command that could write there, while a run lives.
TEST_F(RunFolders, ALivingRunIsHarmedByNothing) {
  const std::string endless =
      train(1000000, "--lr-schedule constant --inject-delay action=2 --checkpoint-every 2 --keep 9999");
  std::istringstream words(endless + " --output out");
  StartedProgram living(2, {std::istream_iterator<std::string>(words), {}}, folder_.path());
  const std::vector<pid_t> ranks = living.ranks_that_step(folder_ / "out");
  ASSERT_EQ(ranks.size(), 2U) << living.result().output;
  for (const char* more :
       {"--output out", "--output out --overwrite", "--output out --resume latest", "--output out --resume auto",
        "--output out --resume out/checkpoints/step-2", "--output ./out/../out"}) {
    const ProgramRun other = run(1, train(1, more));
    EXPECT_EQ(other.status, 2) << more << other.output;
    EXPECT_EQ(count(other.output, "a run is alive in this folder (process "), 1) << more << other.output;
  }
  const std::string sizes = " --seq-len 8 --micro-batches 2 --micro-batch-size 1 --val-batches 1";
  EXPECT_EQ(run(1, "evaluate --init out --val-data train.bin --output out" + sizes).status, 2);
  EXPECT_EQ(run(2, "evaluate --init out --val-data train.bin" + sizes).status, 0);
  EXPECT_EQ(run(1, "generate --init out --tokens 2").status, 0);
  for (const char* reads : {"status out", "report out", "checkpoint out"}) EXPECT_EQ(run(0, reads).status, 0) << reads;
  ASSERT_FALSE(living.is_over()) << living.result().output;
  kill(ranks[1], SIGTERM);
  const ProgramRun result = living.result();
  EXPECT_EQ(result.status, 75) << result.output;
  const std::string steps = std::to_string(events(read_file(folder_ / "out/log.jsonl"), "step").size());
  EXPECT_EQ(run(1, train(std::stoi(steps), "--lr-schedule constant --output alone")).status, 0);
  EXPECT_EQ(read_file(folder_ / "out/model.bin"), read_file(folder_ / "alone/model.bin"));
}

TEST_F(RunFolders, EvaluationWritesNothingUnlessToldTo) {
  ASSERT_EQ(run(1, train(1, "--output out")).status, 0);
  const std::set<std::string> before = names_in(folder_.path());
  const std::string evaluate =
      "evaluate --init out/model.bin --val-data train.bin --seq-len 8 --micro-batches 2 --micro-batch-size 1";
  EXPECT_EQ(run(2, evaluate).status, 0);
  EXPECT_EQ(names_in(folder_.path()), before);
  EXPECT_EQ(run(2, evaluate + " --output out").status, 2);
  EXPECT_EQ(run(2, evaluate + " --output evaluated").status, 0);
  EXPECT_EQ(events(read_file(folder_ / "evaluated/log.jsonl"), "validation").size(), 1U);
}

TEST_F(RunFolders, ResumeAutoStartsAndGoesOnWithOneCommand) {
  const std::string command = train(6, "--output out --checkpoint-every 3 --resume auto");
  ASSERT_EQ(run(1, train(6, "--output whole")).status, 0);
  EXPECT_EQ(run(2, command).status, 0);
  fs::remove_all(folder_ / "out/checkpoints/step-6");
  const ProgramRun again = run(1, command);
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(count(again.output, "resumed at step 3"), 1) << again.output;
  EXPECT_EQ(events(read_file(folder_ / "out/log.jsonl"), "step").size(), 6U);
  EXPECT_EQ(hash("out"), hash("whole"));
  // All steps are done: the run is finished once more, with the same end.
  fs::remove(folder_ / "out/model.bin");
  const ProgramRun done = run(1, command);
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_EQ(events(read_file(folder_ / "out/log.jsonl"), "step").size(), 6U);
  EXPECT_EQ(events(read_file(folder_ / "out/log.jsonl"), "end"), events(read_file(folder_ / "whole/log.jsonl"), "end"));
  EXPECT_EQ(read_file(folder_ / "out/model.bin"), read_file(folder_ / "whole/model.bin"));
}

TEST_F(RunFolders, KeepRemovesOnlyWhatTheRunMade) {
  ASSERT_EQ(run(1, train(4, "--output out --checkpoint-every 2 --keep 2")).status, 0);
  const std::string checkpoints = folder_ / "out/checkpoints/";
  fs::copy(checkpoints + "step-2", checkpoints + "step-2-good", fs::copy_options::recursive);
  fs::copy(checkpoints + "step-2", checkpoints + "best", fs::copy_options::recursive);
  fs::create_directories(checkpoints + "step-1.removed");
  fs::create_directories(checkpoints + "step-9.partial");
  ASSERT_EQ(
      run(1, train(8, "--output out --checkpoint-every 2 --keep 1 --lr-schedule constant --resume latest")).status, 0);
  EXPECT_EQ(names_in(checkpoints), (std::set<std::string>{"best", "step-2-good", "step-8"}));
  // Back to an earlier one: what is further on is set aside, not mistaken for the newest and not lost.
  ASSERT_EQ(run(1, train(8, "--output b --checkpoint-every 2")).status, 0);
  ASSERT_EQ(run(1, train(8, "--output b --checkpoint-every 4 --resume b/checkpoints/step-6")).status, 0);
  EXPECT_EQ(names_in(folder_ / "b/checkpoints"),
            (std::set<std::string>{"step-4", "step-6", "step-8", "step-8.set-aside"}));
}

TEST_F(RunFolders, NamesOfAnyBytesCanBeResumed) {
  for (const char* name : {"\\377\\376", "a b", "-c", "new\\nline"}) {
    const std::string output = "\"$(printf 'o" + std::string(name) + "')\"";
    ASSERT_EQ(run(1, train(2, "--output " + output)).status, 0) << name;
    const ProgramRun again = run(2, train(3, "--lr-schedule constant --resume auto --output " + output));
    EXPECT_EQ(again.status, 0) << again.output;
    EXPECT_EQ(count(again.output, "resumed at step 2"), 1) << again.output;
  }
}

TEST_F(RunFolders, LinksAreNotFollowed) {
  const std::string target = folder_ / "precious";
  write_file(target, "precious", 8);
  for (const char* name : {"run.json", "log.jsonl", "state.0", "report.html", "model.bin"}) {
    for (const char* more : {"--output out --overwrite", "--output out --resume auto"}) {
      fs::create_directories(folder_ / "out");
      fs::create_symlink(target, folder_ / ("out/" + std::string(name)));
      run(1, train(1, more));
      EXPECT_EQ(read_file(target), "precious") << name << more;
      fs::remove_all(folder_ / "out");
    }
  }
}

TEST(CutLog, EndsBeforeTheStepThatIsTakenAgain) {
  const Folder folder;
  const std::string path = folder / "log.jsonl";
  const std::string kept =
      "{\"event\":\"plan\"}\n{\"event\":\"validation\",\"step\":0,\"loss\":1}\n{\"event\":\"step\",\"step\":0}\nnoise\n"
      "{\"event\":\"step\",\"step\":1}\n";
  for (const std::string rest : {"{\"event\":\"validation\",\"step\":2}\n{\"event\":\"step\",\"step\":2}\n",
                                 "{\"event\":\"step\",\"step\":2}\n{\"ev", "{\"event\":\"step\",\"st", "",
                                 "{\"event\":\"measurement\"}\n{\"event\":\"end\"}\n"}) {
    const std::string log = kept + rest;
    write_file(path, log.data(), log.size());
    cut_log(path, 2);
    EXPECT_EQ(read_file(path), kept) << rest;
  }
  cut_log(folder / "none", 2);
}

}  // namespace
}  // namespace train_gpt::test
