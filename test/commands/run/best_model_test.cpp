// The model of the lowest validation loss, and what --overwrite gives up: nothing is lost before there is something
// else.
#include "commands/run/best_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "test/commands/log_events.h"
#include "test/commands/program.h"

namespace train_gpt::test {
namespace {

namespace fs = std::filesystem;

class KeptModels : public testing::Test {
 protected:
  KeptModels() {
    for (const char* name : {"train", "other"}) {
      std::string text;
      for (int i = 1; i <= 2000; ++i) text += std::to_string(i * (name[0] == 't' ? 1 : 7)) + "\n";
      write_file(folder_ / (std::string(name) + ".txt"), text.data(), text.size());
      const std::string files = "--text " + std::string(name) + ".txt --output " + name + ".bin";
      EXPECT_EQ(run(0, "prepare " + files).status, 0);
    }
  }
  // The program runs in folder_.
  ProgramRun run(int ranks, const std::string& arguments) const {
    return run_program(ranks, arguments, {.environment = "-C " + folder_.path()});
  }
  // The loss on the validation data falls, then rises.
  static std::string train(int steps, const std::string& more, const std::string& rate = "0.1",
                           const std::string& pace = "2") {
    return "--train-data train.bin --layers 1 --heads 1 --hidden 8 --max-seq-len 8 --seq-len 8 --micro-batch-size 1 "
           "--micro-batches 2 --threads 1 --lr-schedule constant --learning-rate " +
           rate + " --checkpoint-every " + pace + " --steps " + std::to_string(steps) + " " + more;
  }
  // The step of the lowest validation loss in the log, the first one left out.
  std::int64_t best_in_log(const std::string& output) const {
    auto all = events(read_file(folder_ / (output + "/log.jsonl")), "validation");
    std::erase_if(all, [](const auto& it) { return it.at("step") == 0; });
    return std::min_element(all.begin(), all.end(),
                            [](const auto& a, const auto& b) {
                              return a.at("loss").template get<double>() < b.at("loss").template get<double>();
                            })
        ->at("step");
  }
  std::string model(const std::string& folder) const { return read_file(folder_ / (folder + "/model.bin")); }
  std::string hash(const std::string& output) const {
    return events(read_file(folder_ / (output + "/log.jsonl")), "end").at(0).at("parameter_hash");
  }

  Folder folder_;
};

const std::string kValidate = " --val-data train.bin --val-every 2 ";

TEST_F(KeptModels, TheBestIsThatOfTheLowestValidationLossWhateverKeepRemoves) {
  ASSERT_EQ(run(1, train(12, "--output all --keep 9" + kValidate)).status, 0);
  const ProgramRun two = run(2, train(12, "--output out --keep 1" + kValidate));
  ASSERT_EQ(two.status, 0) << two.output;
  const std::int64_t best = best_in_log("out");
  ASSERT_LT(best, 12) << "the case tells nothing";
  EXPECT_EQ(model("out/best"), model("all/checkpoints/step-" + std::to_string(best)));
  EXPECT_EQ(best_record(folder_ / "out")->step, best);
  EXPECT_EQ(names_in(folder_ / "out/best"), (std::set<std::string>{"model.bin", "validation.json"}));
  EXPECT_EQ(names_in(folder_ / "out/checkpoints"), (std::set<std::string>{"step-12"}));
  EXPECT_EQ(run(1, "generate --tokens 2 --init out/best").status, 0);
  // Without data to validate on there is none.
  ASSERT_EQ(run(1, train(2, "--output none")).status, 0);
  EXPECT_FALSE(fs::exists(folder_ / "none/best"));
}

TEST_F(KeptModels, AResumedRunKnowsTheBestSoFarUnlessItIsOfOtherData) {
  ASSERT_EQ(run(1, train(12, "--output whole --keep 9" + kValidate)).status, 0);
  const std::int64_t best = best_in_log("whole");
  const auto goes_on = [&](const std::string& output, const std::string& more) {
    const ProgramRun next = run(2, train(12, "--output " + output + " --resume latest " + more));
    ASSERT_EQ(next.status, 0) << next.output;
  };
  for (const char* output : {"same", "other", "damaged", "interrupted"}) {
    ASSERT_EQ(run(1, train(static_cast<int>(best) + 2, std::string("--output ") + output + kValidate)).status, 0);
  }
  goes_on("same", kValidate);
  EXPECT_EQ(model("same/best"), model("whole/best"));
  goes_on("other", "--val-data other.bin --val-every 2");
  EXPECT_GT(best_record(folder_ / "other")->step, best);
  // One whose record cannot be read is replaced by the next; one that was losing its name to the next has it again.
  fs::resize_file(folder_ / "damaged/best/validation.json", 9);
  goes_on("damaged", kValidate);
  EXPECT_GT(best_record(folder_ / "damaged")->step, best);
  fs::rename(folder_ / "interrupted/best", folder_ / "interrupted/best.replaced");
  fs::create_directories(folder_ / "interrupted/best.partial");
  goes_on("interrupted", kValidate);
  EXPECT_EQ(model("interrupted/best"), model("whole/best"));
  EXPECT_FALSE(fs::exists(folder_ / "interrupted/best.partial") || fs::exists(folder_ / "interrupted/best.replaced"));
  // A run that goes back to a step before it sets it aside: it is of a future that may not come.
  const ProgramRun back = run(1, train(3, "--output whole --resume whole/checkpoints/step-2" + kValidate));
  ASSERT_EQ(back.status, 0) << back.output;
  EXPECT_EQ(model("whole/best.set-aside"), model("same/best"));
  EXPECT_LE(best_record(folder_ / "whole")->step, 3);
}

TEST_F(KeptModels, EvaluateAndGenerateLookAtTheLatestRun) {
  EXPECT_EQ(run(1, "generate --tokens 2").status, 2);
  const ProgramRun none = run(1, "evaluate --val-data train.bin");
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(count(none.output, "there is no out/latest"), 1) << none.output;
  ASSERT_EQ(run(1, train(2, "")).status, 0);
  ASSERT_EQ(run(1, train(4, "")).status, 0);
  const std::string sizes = " --seq-len 8 --micro-batch-size 1 --val-data train.bin";
  const auto value = [](const ProgramRun& it) { return it.output.substr(it.output.find("parameter_hash"), 31); };
  EXPECT_EQ(value(run(1, "evaluate" + sizes)), "parameter_hash " + hash("out/run-2"));
  EXPECT_EQ(run(1, "generate --tokens 5 --temperature 0").output,
            run(1, "generate --tokens 5 --temperature 0 --init out/run-2").output);
  for (const char* command : {"status", "report"}) EXPECT_EQ(run(0, command).status, 0) << command;
  EXPECT_EQ(run(1, train(2, "")).output.find("out/latest"), std::string::npos);
  EXPECT_TRUE(fs::exists(folder_ / "out/run-3")) << "train begins a new one";
}

TEST_F(KeptModels, OverwriteRemovesTheOldRunWhenTheNewOneHasSomething) {
  ASSERT_EQ(run(1, train(4, "--output out" + kValidate)).status, 0);
  ASSERT_EQ(run(1, train(2, "--output new --seed 5")).status, 0);
  const std::string old = model("out"), old_best = model("out/best");
  write_file(folder_ / "out/notes", "mine", 4);
  fs::create_directories(folder_ / "out/checkpoints/step-2-good");
  // It ends in its first step, twice.
  const std::string explodes = train(4, "--output out --overwrite --grad-clip 0 --seed 5", "1e38", "1h");
  for (int i = 0; i < 2; ++i) {
    const ProgramRun failed = run(2, explodes);
    ASSERT_EQ(failed.status, 1) << failed.output;
    EXPECT_EQ(count(failed.output, "note: the run that was in out is kept in out/overwritten until"), 1)
        << failed.output;
    EXPECT_EQ(model("out/overwritten"), old);
    EXPECT_EQ(model("out/overwritten/best"), old_best);
    EXPECT_EQ(names_in(folder_ / "out/overwritten/checkpoints"), (std::set<std::string>{"step-2", "step-4"}));
  }
  EXPECT_EQ(run(1, train(6, "--output again --resume out/overwritten/checkpoints/step-4")).status, 0);
  ASSERT_EQ(run(1, train(2, "--output out --overwrite --seed 5")).status, 0);
  EXPECT_FALSE(fs::exists(folder_ / "out/overwritten"));
  EXPECT_FALSE(fs::exists(folder_ / "out/best"));
  EXPECT_EQ(hash("out"), hash("new"));
  EXPECT_EQ(read_file(folder_ / "out/notes"), "mine");
  EXPECT_EQ(names_in(folder_ / "out/checkpoints"), (std::set<std::string>{"step-2", "step-2-good"}));
  // A folder of that name that is not ours stays, and so does the run.
  fs::create_directories(folder_ / "out/overwritten/mine");
  const ProgramRun refused = run(2, train(2, "--output out --overwrite"));
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_EQ(count(refused.output, "out/overwritten: is in the way"), 1) << refused.output;
  EXPECT_EQ(hash("out"), hash("new"));
}

TEST_F(KeptModels, WhatInterruptedRunsLeftIsRemovedAsTheNextBegins) {
  ASSERT_EQ(run(1, train(2, "--output out")).status, 0);
  const std::set<std::string> before = names_in(folder_ / "out");
  for (const char* folder : {"checkpoints/step-4.partial", "checkpoints/step-1.removed", "best.partial"}) {
    fs::create_directories(folder_ / ("out/" + std::string(folder)));
  }
  for (const char* file :
       {"model.bin.tmp", "checkpoint.request", "report.html.123.partial", "probe.0123456789abcdef", "probe.mine"}) {
    write_file(folder_ / ("out/" + std::string(file)), "x", 1);
  }
  ASSERT_EQ(run(1, train(2, "--output out --resume auto", "0.1", "0")).status, 0);
  std::set<std::string> after = before;
  after.insert("probe.mine");
  EXPECT_EQ(names_in(folder_ / "out"), after);
  EXPECT_EQ(names_in(folder_ / "out/checkpoints"), (std::set<std::string>{"step-2"}));
}

}  // namespace
}  // namespace train_gpt::test
