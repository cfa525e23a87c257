// The whole program under mpirun: golden losses, logs, bad input.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "test/commands/log_events.h"
#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;

class GoldenRun : public testing::Test {
 protected:
  GoldenRun() {
    const auto put = [&](const std::string& name, const std::vector<char>& bytes) {
      write_file(folder_ / name, bytes.data(), bytes.size());
    };
    put("model.bin", golden::checkpoint());
    put("train.bin", golden::token_file(golden::kTrainTokens, golden::kTrainSeed));
    put("val.bin", golden::token_file(golden::kValidationTokens, golden::kValidationSeed));
  }

  std::string arguments(int m, const std::string& output) const {
    return "--init " + (folder_ / "model.bin") + " --train-data " + (folder_ / "train.bin") + " --val-data " +
           (folder_ / "val.bin") +
           " --shuffle false --seq-len 64 --steps 41 --learning-rate 1e-4 --lr-schedule constant --beta1 0.9 --beta2 "
           "0.999 "
           "--eps 1e-8 --weight-decay 0 --grad-clip 0 --val-every 10 --val-batches 5 --micro-batches " +
           std::to_string(m) + " --micro-batch-size " + std::to_string(4 / m) + " --output " + (folder_ / output);
  }

  Folder folder_;
};

TEST_F(GoldenRun, LossesAreThoseOfLlmcForEveryRankCountScheduleAndMicroBatching) {
  for (const int m : {1, 2, 4}) {
    std::string hash;
    for (const int p : {1, 2, 4}) {
      for (const std::string schedule : {"gpipe", "1f1b"}) {
        if (p == 1 && schedule == "gpipe") continue;
        const std::string name = schedule + "_p" + std::to_string(p) + "_m" + std::to_string(m);
        const ProgramRun run = run_program(p, arguments(m, name) + " --schedule " + schedule);
        ASSERT_EQ(run.status, 0) << run.output;
        const std::string log = read_file(folder_ / (name + "/log.jsonl"));
        const auto steps = events(log, "step");
        const auto validations = events(log, "validation");
        ASSERT_EQ(steps.size(), golden::kTrainLosses.size()) << name;
        for (std::size_t i = 0; i < steps.size(); ++i) {
          EXPECT_EQ(steps[i].at("step"), i);
          EXPECT_NEAR(steps[i].at("loss").get<double>(), golden::kTrainLosses[i], golden::kTolerance)
              << name << " " << i;
        }
        ASSERT_EQ(validations.size(), golden::kValidationLosses.size() + 1) << name;  // and one after the last step
        for (std::size_t i = 0; i < golden::kValidationLosses.size(); ++i) {
          EXPECT_EQ(validations[i].at("step"), 10 * i);
          EXPECT_NEAR(validations[i].at("loss").get<double>(), golden::kValidationLosses[i], golden::kTolerance)
              << name;
        }
        const std::string this_hash = events(log, "end").at(0).at("parameter_hash");
        if (hash.empty()) hash = this_hash;
        EXPECT_EQ(this_hash, hash) << name;
      }
    }
  }
}

TEST_F(GoldenRun, TheLogHasTheContractsFields) {
  const ProgramRun run = run_program(2, arguments(2, "out") + " --schedule 1f1b --threads 1");
  ASSERT_EQ(run.status, 0) << run.output;
  const std::string log = read_file(folder_ / "out/log.jsonl");
  const Json step = events(log, "step").at(0);
  for (const char* field :
       {"step", "loss", "grad_norm", "lr", "ms", "tokens_per_s", "bubble", "bubble_span", "bubble_predicted"}) {
    EXPECT_TRUE(step.contains(field)) << field;
    EXPECT_TRUE(step.at(field).is_number()) << field;
  }
  EXPECT_EQ(step.at("lr"), 1e-4);
  EXPECT_EQ(events(log, "plan").size(), 1U);
  const Json end = events(log, "end").at(0);
  EXPECT_EQ(end.at("parameter_hash").get<std::string>().size(), 16U);
  EXPECT_EQ(end.at("final_loss"), events(log, "step").back().at("loss"));
  EXPECT_EQ(count(run.output, "/41  loss "), 41);
}

TEST_F(GoldenRun, TrainsAListFromAFile) {
  const std::string list = folder_ / "zb-v.csv";
  ASSERT_EQ(run_program(0, "simulate --stages 2 --micro-batches 4 --schedule zb-v --csv " + list).status, 0);
  const std::string run_of = "--train-data " + (folder_ / "train.bin") +
                             " --threads 1 --seq-len 64 --micro-batch-size 1" +
                             " --layers 2 --heads 2 --hidden 32 --steps 3 --overwrite --output " + (folder_ / "out");
  std::string hash;
  for (const std::string& schedule : {std::string(" --micro-batches 4 --schedule 1f1b"), " --schedule-file " + list}) {
    const ProgramRun run = run_program(2, run_of + schedule);
    ASSERT_EQ(run.status, 0) << run.output;
    const std::string this_hash = events(read_file(folder_ / "out/log.jsonl"), "end").at(0).at("parameter_hash");
    if (hash.empty()) hash = this_hash;
    EXPECT_EQ(this_hash, hash) << schedule;
  }
}

TEST_F(GoldenRun, BadInputIsOneMessageAndStatusTwo) {
  struct Case {
    std::string arguments;
    std::vector<std::string> parts;
  };
  const std::string good = arguments(2, "out");
  const std::string data = folder_ / "train.bin";
  const std::string sizes = " --layers 2 --heads 2 --hidden 32 --seq-len 64 --output " + (folder_ / "out");
  std::vector<char> swapped = golden::token_file(2000, 5);
  for (std::size_t i = 0; i + 3 < 1024; i += 4) {
    std::swap(swapped[i], swapped[i + 3]);
    std::swap(swapped[i + 1], swapped[i + 2]);
  }
  write_file(folder_ / "swapped.bin", swapped.data(), swapped.size());
  write_file(folder_ / "empty.bin", "", 0);
  write_file(folder_ / "short.bin", swapped.data(), 100);
  const std::string circle =
      "0F0,0B0,2F0,2B0\n1F0,1B0,3F0,3B0\n";  // both ranks start with what the other delivers later
  write_file(folder_ / "circle.csv", circle.data(), circle.size());
  const std::vector<Case> cases = {
      {"--train-data " + (folder_ / "none.bin") + sizes, {"none.bin"}},
      {"--train-data " + (folder_ / "empty.bin") + sizes, {"empty.bin"}},
      {"--train-data " + (folder_ / "short.bin") + sizes, {"short.bin"}},
      {"--train-data " + (folder_ / "swapped.bin") + sizes, {"swapped.bin"}},
      {"--train-data " + data + sizes + " --vocab 500", {"train.bin", "500"}},
      {"--train-data " + data + sizes + " --micro-batches 300", {"train.bin"}},
      {"--train-data " + data + " --layers 2 --heads 3 --hidden 32", {"heads", "3"}},
      {"--train-data " + data + " --layers 1 --heads 2 --hidden 32 --partition 1,2", {"--partition"}},
      {good + " --stpes 3", {"--stpes", "--steps"}},
      {"--train-data " + data + sizes + " --steps many", {"--steps", "many"}},
      {good + " --layers 3 --heads 1 --hidden 8", {"--init"}},
      {"--train-data " + data + sizes + " --seq-len 64 --max-seq-len 32", {}},
      {"--train-data " + data + sizes + " --schedule-file " + (folder_ / "circle.csv"),
       {"ranks wait for each other in a circle", "rank 0 at 0B0 waits for the gradient from rank 1"}},
      {"--train-data " + data + sizes + " --micro-batches 4 --schedule dualpipe --accumulation-groups 1",
       {"--accumulation-groups 1", "a multiple of the 2 directions of dualpipe"}},
      {"--train-data " + data + sizes + " --recompute 99,0", {"--recompute 99,0", "has only"}},
      {"--train-data " + data + " --layers 2 --heads 2 --hidden 65536 --seq-len 64",
       {"the 2 ranks of one host need", "TiB", "--micro-batch-size"}},
  };
  for (const Case& bad : cases) {
    const ProgramRun run = run_program(2, bad.arguments);
    EXPECT_EQ(run.status, 2) << bad.arguments << "\n" << run.output;
    EXPECT_EQ(count(run.output, "train_gpt: error:"), 1) << bad.arguments << "\n" << run.output;
    for (const std::string& part : bad.parts) EXPECT_NE(run.output.find(part), std::string::npos) << run.output;
  }
  const ProgramRun too_many = run_program(
      8, "--train-data " + data + " --layers 1 --heads 2 --hidden 32 --seq-len 64 --schedule interleaved --chunks 8");
  EXPECT_EQ(too_many.status, 2) << too_many.output;
  EXPECT_EQ(count(too_many.output, "train_gpt: error:"), 1) << too_many.output;
}

TEST_F(GoldenRun, TheModelFileIsReadAgainAndGeneratesText) {
  ASSERT_EQ(run_program(2, arguments(2, "out") + " --steps 1").status, 2) << "an option given twice is refused";
  const std::string short_run = arguments(2, "out");
  const std::string two_steps = short_run.substr(0, short_run.find("--steps 41")) + "--steps 2" +
                                short_run.substr(short_run.find("--steps 41") + 10);
  const ProgramRun run = run_program(2, two_steps);
  ASSERT_EQ(run.status, 0) << run.output;
  const std::string model = folder_ / "out/model.bin";
  const ProgramRun again = run_program(
      4, "evaluate --init " + model + " --val-data " + (folder_ / "val.bin") +
             " --seq-len 64 --micro-batches 2 --micro-batch-size 2 --val-batches 5 --output " + (folder_ / "again"));
  ASSERT_EQ(again.status, 0) << again.output;
  const std::string before = read_file(folder_ / "out/log.jsonl");
  const std::string after = read_file(folder_ / "again/log.jsonl");
  EXPECT_EQ(events(before, "validation").back().at("loss"), events(after, "validation").back().at("loss"));
  EXPECT_EQ(events(before, "end").at(0).at("parameter_hash"), events(after, "end").at(0).at("parameter_hash"));
  const std::string generate = "generate --init " + model + " --prompt \"1 2 3\" --tokens 5 --temperature 0";
  const ProgramRun one = run_program(1, generate);
  EXPECT_EQ(one.status, 0) << one.output;
  EXPECT_EQ(one.output.rfind("1 2 3 ", 0), 0U) << one.output;
  EXPECT_EQ(run_program(3, generate).output, one.output);
}

}  // namespace
}  // namespace train_gpt::test
