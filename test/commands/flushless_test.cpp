// --schedule 2bw under mpirun: one rank's numbers, checkpoints and stop requests that any number of ranks goes on from,
// and what does not go together. pipedream, whose numbers depend on the ranks.
#include <gtest/gtest.h>
#include <signal.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "test/commands/log_events.h"
#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;

class FlushlessRun : public testing::Test {
 protected:
  FlushlessRun() {
    const std::vector<char> tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
    write_file(folder_ / "train.bin", tokens.data(), tokens.size());
  }

  std::string sizes() const {
    return "--train-data " + (folder_ / "train.bin") +
           " --layers 2 --heads 2 --hidden 32 --vocab 1009 --max-seq-len 32 --seq-len 32 --micro-batch-size 1 "
           "--micro-batches 4 --threads 1 --lr-schedule constant --grad-clip 2 --schedule 2bw ";
  }
  // Losses, norms and learning rates of the steps, and validation losses in between.
  std::string numbers(const std::string& output) const {
    std::istringstream lines(read_file(folder_ / (output + "/log.jsonl")));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event.at("event") == "step")
        text += event.at("loss").dump() + " " + event.at("grad_norm").dump() + " " + event.at("lr").dump() + "\n";
      if (event.at("event") == "validation") text += "validation " + event.at("loss").dump() + "\n";
    }
    return text;
  }
  std::string hash(const std::string& output) const {
    return events(read_file(folder_ / (output + "/log.jsonl")), "end").back().at("parameter_hash");
  }
  // The same for pipedream.
  std::string pipedream(const std::string& settings = "--grad-clip 0 --tied false") const {
    const std::string of_2bw = "--grad-clip 2 --schedule 2bw";
    std::string text = sizes();
    return text.replace(text.find(of_2bw), of_2bw.size(), "--schedule pipedream " + settings);
  }
  void run(int ranks, const std::string& output, const std::string& more) const { run(ranks, output, more, sizes()); }
  void run(int ranks, const std::string& output, const std::string& more, const std::string& options) const {
    const ProgramRun program = run_program(ranks, "train " + options + more + " --output " + (folder_ / output));
    EXPECT_EQ(program.status, 0) << more << "\n" << program.output;
  }
  static std::string refusal(int ranks, const std::string& arguments) {
    const ProgramRun program = run_program(ranks, "train " + arguments);
    EXPECT_EQ(program.status, 2) << program.output;
    return program.output;
  }

  Folder folder_;
};

TEST_F(FlushlessRun, HasTheNumbersOfOneRankAndGoesOnFromItsCheckpoints) {
  const std::string common = "--val-data " + (folder_ / "train.bin") +
                             " --val-every 3 --val-batches 1 --checkpoint-every 4 --keep 9 --steps 9";
  for (const std::string correction : {"none", "error-feedback"}) {
    const std::string more = common + " --delay-correction " + correction;
    run(0, correction + "-1", more);
    run(3, correction + "-3", more + " --synchronous-sends");
    EXPECT_EQ(numbers(correction + "-3"), numbers(correction + "-1")) << correction;
    EXPECT_EQ(hash(correction + "-3"), hash(correction + "-1")) << correction;
    run(2, correction + "-2", more + " --resume " + (folder_ / (correction + "-3/checkpoints/step-4")));
    EXPECT_EQ(hash(correction + "-2"), hash(correction + "-1")) << correction;
  }
  EXPECT_NE(hash("none-1"), hash("error-feedback-1"));

  const std::string checkpoint = folder_ / "none-3/checkpoints/step-4";
  const std::string resume = sizes() + "--steps 9 --output " + (folder_ / "refused") + " --resume " + checkpoint;
  EXPECT_NE(refusal(2, resume + " --delay-correction error-feedback").find("but the checkpoint has none"),
            std::string::npos);
  std::string flushes = resume;
  flushes.replace(flushes.find("2bw"), 3, "1f1b");
  EXPECT_NE(refusal(2, flushes).find("the checkpoint is of 2bw"), std::string::npos);
  EXPECT_EQ(std::remove((checkpoint + "/previous.bin").c_str()), 0);
  EXPECT_NE(refusal(2, resume).find("previous.bin is missing"), std::string::npos);
}

TEST_F(FlushlessRun, PipeDreamGoesOnWithItsRanksAndItsCut) {
  const std::string more = "--checkpoint-every 2 --keep 9 --steps 5";
  run(3, "unbroken", more + " --partition 2,2,2", pipedream());
  const std::string checkpoint = folder_ / "unbroken/checkpoints/step-2";
  run(3, "resumed", more + " --synchronous-sends --resume " + checkpoint, pipedream());
  EXPECT_EQ(hash("resumed"), hash("unbroken"));
  run(2, "two", more + " --partition 3,3", pipedream());
  EXPECT_NE(hash("two"), hash("unbroken"));

  const std::string resume = pipedream() + "--steps 5 --output " + (folder_ / "refused") + " --resume " + checkpoint;
  EXPECT_NE(refusal(2, resume).find("on 2 ranks than on the 3"), std::string::npos);
  EXPECT_NE(refusal(3, resume + " --partition 4,1,1").find("--partition is 4,1,1, but the checkpoint has"),
            std::string::npos);
  EXPECT_EQ(std::remove((checkpoint + "/previous-2.bin").c_str()), 0);
  EXPECT_NE(refusal(3, resume).find("previous-2.bin is missing"), std::string::npos);
}

TEST_F(FlushlessRun, PipeDreamRefusesWhatWaitsForOtherRanks) {
  const auto with = [&](const std::string& more) { return refusal(0, pipedream() + more); };
  EXPECT_NE(refusal(0, pipedream("--tied false")).find("give --grad-clip 0"), std::string::npos);
  EXPECT_NE(refusal(0, pipedream("--grad-clip 0")).find("give --tied false"), std::string::npos);
  EXPECT_NE(with("--max-skipped 1").find("leave out --max-skipped"), std::string::npos);
  EXPECT_NE(with("--accumulation-groups 2").find("leave out --accumulation-groups"), std::string::npos);
  EXPECT_NE(with("--warmup-factor 2").find("2bw takes it"), std::string::npos);
  EXPECT_NE(with("--delay-correction error-feedback").find("2bw takes it"), std::string::npos);
  EXPECT_NE(refusal(2, pipedream() + "--data-parallel 2").find("give --data-parallel 1"), std::string::npos);
  run(0, "tied", "--steps 1");
  std::string from_file = "--train-data " + (folder_ / "train.bin") + " --init " + (folder_ / "tied/model.bin") +
                          " --seq-len 32 --micro-batches 4 --grad-clip 0 --schedule pipedream";
  EXPECT_NE(refusal(2, from_file).find("tied/model.bin is tied"), std::string::npos);
}

TEST_F(FlushlessRun, StopsWithTheStepThatHasBegunAndGoesOn) {
  std::istringstream words(sizes() + "--steps 1000000 --inject-delay action=2 --output " + (folder_ / "stopped"));
  StartedProgram started(3, {std::istream_iterator<std::string>(words), {}}, folder_.path());
  const std::vector<pid_t> ranks = started.ranks_that_step(folder_ / "stopped");
  ASSERT_EQ(ranks.size(), 3U) << started.result().output;
  kill(ranks[1], SIGTERM);
  EXPECT_EQ(started.result().status, 75) << started.result().output;
  const std::size_t taken = events(read_file(folder_ / "stopped/log.jsonl"), "step").size();
  const std::string steps = "--steps " + std::to_string(taken + 3);
  run(2, "stopped", steps + " --resume latest");
  run(0, "unbroken", steps);
  EXPECT_EQ(hash("stopped"), hash("unbroken"));
}

TEST_F(FlushlessRun, TheTimedDeviceHasSteadySteps) {
  const std::string output = folder_ / "timed";
  const ProgramRun program =
      run_program(4,
                  "train --device timed --layers 4 --heads 2 --hidden 32 --vocab 257 --seq-len 16 --micro-batches 4 "
                  "--cost-forward 2 --cost-input 2 --cost-weight 2 --steps 6 --schedule 2bw --trace " +
                      (folder_ / "trace.json") + " --svg " + (folder_ / "step.svg") + " --output " + output);
  ASSERT_EQ(program.status, 0) << program.output;
  EXPECT_NE(program.output.find("predicted 24.0 ms per step of a full pipe, bubble 0.0%"), std::string::npos)
      << program.output;
  const std::vector<Json> steady = events(read_file(output + "/log.jsonl"), "steady");
  ASSERT_EQ(steady.size(), 1U);
  EXPECT_EQ(steady[0].at("steps"), 4) << "all but the first and the last";
  EXPECT_DOUBLE_EQ(steady[0].at("period_ms_predicted"), 24);
  EXPECT_GE(steady[0].at("period_ms"), 24) << "no machine is faster than its actions";
  EXPECT_GT(Json::parse(read_file(folder_ / "trace.json")).at("traceEvents").size(), 100U);
  EXPECT_NE(read_file(folder_ / "step.svg").find("one step of each rank"), std::string::npos);
  EXPECT_EQ(read_file(folder_ / "step.svg").find("class='version'"), std::string::npos) << "of a step somewhere";
  const ProgramRun asked = run_program(0, "whatif " + output);
  EXPECT_EQ(asked.status, 2);
  EXPECT_NE(asked.output.find("--schedule 2bw, which never flushes, and keeps no records"), std::string::npos)
      << asked.output;
}

TEST_F(FlushlessRun, RefusesWhatDoesNotGoTogether) {
  EXPECT_NE(refusal(0, sizes() + "--optimizer-step optimistic").find("its norm is never waited for"),
            std::string::npos);
  EXPECT_NE(refusal(0, sizes() + "--warmup-factor 3").find("--warmup-factor"), std::string::npos);
  std::string flushes = sizes();
  flushes.replace(flushes.find("2bw"), 3, "zb-h1");
  EXPECT_NE(refusal(0, flushes + "--delay-correction error-feedback").find("2bw takes it"), std::string::npos);
  EXPECT_NE(refusal(2, sizes() + "--delay-correction error-feedback --data-parallel 2 --zero 1").find("whole updates"),
            std::string::npos);
  EXPECT_NE(refusal(2, sizes() + "--data-parallel 2 --zero 2").find("give --zero 1"), std::string::npos);
  EXPECT_NE(refusal(6, sizes()).find("needs at least 5"), std::string::npos);
}

}  // namespace
}  // namespace train_gpt::test
