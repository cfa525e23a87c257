// The words of a run, with a clock and figures that the test sets: every number is computed here a second time.
#include "commands/run/log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "commands/report/report_log.h"
#include "commands/run/estimate.h"
#include "commands/run/step_meter.h"
#include "model/flops.h"
#include "pipeline/schedule/catalog.h"
#include "test/commands/log_events.h"
#include "test/commands/program.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;

class ScriptedLog : public testing::Test {
 protected:
  ScriptedLog() { options_.run.steps = 10; }

  LogClock clock() {
    return {.seconds = [this] { return now_; }, .date = [] { return std::string("2026-12-01T00:00:00Z"); }};
  }
  RunLog open(const Screen& screen = {}, bool append = false) {
    return {folder_.path(), /*writes=*/true, append, screen, clock()};
  }
  // 4000 tokens of an epoch, 512 of a step.
  void start(RunLog& log, std::int64_t first = 0) {
    log.start({.device = "a device",
               .model = "model: of the test",
               .first_step = first,
               .tokens_per_step = 512,
               .training_tokens = 4000},
              options_);
    log.begin_steps();
  }
  static StepReport report(std::int64_t step, double ms) {
    StepReport it;
    it.step = step;
    it.steps = 10;
    it.tokens = 512;
    it.result.loss = 2.5;
    it.result.grad_norm = 0.75;
    it.result.learning_rate = 3e-4;
    it.result.ms = ms;
    it.bubble = {.bubble = 0.25, .bubble_span = 0.125};
    it.bubble_predicted = 0.2;
    return it;
  }
  std::string log_text() const { return read_file(folder_ / "log.jsonl"); }
  std::string page() const { return read_file(folder_ / "report.html"); }

  Folder folder_;
  Options options_;
  double now_ = 1000;
};

TEST_F(ScriptedLog, EveryFigureOfAStepIsWhatItsNameSays) {
  RunLog log = open();
  start(log);
  testing::internal::CaptureStdout();
  StepReport first = report(0, 400);
  first.mfu = 0.415;
  now_ += 2;  // the first step is slow: two seconds, of which the step itself took 0.4
  log.step(first);
  now_ += 1;
  log.step(report(1, 256));
  now_ += 1.5;
  log.step(report(2, 512));
  const std::string shown = testing::internal::GetCapturedStdout();
  const std::vector<Json> steps = events(log_text(), "step");
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[2].at("step"), 2);
  EXPECT_EQ(steps[2].at("loss"), 2.5);
  EXPECT_EQ(steps[2].at("grad_norm"), 0.75);
  EXPECT_EQ(steps[2].at("lr"), 3e-4);
  EXPECT_EQ(steps[2].at("ms"), 512);
  EXPECT_DOUBLE_EQ(steps[2].at("tokens_per_s"), 1000) << "512 tokens in 512 ms";
  EXPECT_DOUBLE_EQ(steps[1].at("tokens_per_s"), 2000);
  EXPECT_DOUBLE_EQ(steps[2].at("elapsed_s"), 4.5);
  EXPECT_DOUBLE_EQ(steps[2].at("tokens_per_s_mean").get<double>(), 3 * 512 / 4.5);
  EXPECT_DOUBLE_EQ(steps[0].at("eta_s"), 9 * 2.0) << "nothing but the first step is known";
  EXPECT_DOUBLE_EQ(steps[2].at("eta_s"), 7 * 1.25) << "two steps in 2.5 s since the first one ended";
  EXPECT_DOUBLE_EQ(steps[2].at("epoch").get<double>(), 3 * 512 / 4000.0);
  EXPECT_EQ(steps[0].at("mfu"), 0.415);
  EXPECT_TRUE(steps[1].at("mfu").is_null());
  EXPECT_EQ(steps[2].at("bubble"), 0.25);
  EXPECT_EQ(steps[2].at("bubble_span"), 0.125);
  EXPECT_EQ(steps[2].at("bubble_predicted"), 0.2);

  for (const char* part :
       {"step  0/10  loss 2.500000  norm   0.7500  lr 3.000e-04  ", "  400.0 ms    1280 tok/s (mean 256)", "MFU 41.5%",
        "bubble 25.0% (predicted 20.0%)  epoch 0.13  0:02, 0:18 left", "512.0 ms    1000 tok/s (mean 341)",
        "epoch 0.38  0:05, 0:09 left"}) {
    EXPECT_NE(shown.find(part), std::string::npos) << part << "\n" << shown;
  }
  EXPECT_EQ(count(shown, "MFU"), 1) << "where it is not known, nothing is said";
}

TEST_F(ScriptedLog, AResumedRunCountsItsOwnTimeAndAllEpochs) {
  {
    RunLog log = open();
    start(log);
    log.step(report(0, 100));
  }
  RunLog log = open({}, /*append=*/true);
  start(log, 5);
  log.resumed(5, "checkpoints/step-5");
  now_ += 4;
  log.step(report(5, 100));
  const Json step = events(log_text(), "step").back();
  EXPECT_DOUBLE_EQ(step.at("elapsed_s"), 4);
  EXPECT_DOUBLE_EQ(step.at("tokens_per_s_mean"), 128);
  EXPECT_DOUBLE_EQ(step.at("eta_s"), 4 * 4.0);
  EXPECT_DOUBLE_EQ(step.at("epoch").get<double>(), 6 * 512 / 4000.0);
  const LoggedRun run = read_log(folder_ / "log.jsonl");
  EXPECT_EQ(run.loss.size(), 2U);
  EXPECT_EQ(run.resumes, std::vector<double>{5});
}

TEST_F(ScriptedLog, TheStartSaysWhatTheRunIs) {
  options_.data.train_data = "books/*.bin";
  options_.data.seed = 18446744073709551615ULL;
  options_.optimizer.learning_rate = 2e-3;
  options_.optimizer.warmup_steps = 7;
  options_.optimizer.lr_schedule = LearningRateShape::wsd;
  RunLog log = open();
  start(log);
  const Json event = events(log_text(), "start").at(0);
  EXPECT_EQ(event.at("log_version"), kLogVersion);
  EXPECT_EQ(event.at("time"), "2026-12-01T00:00:00Z");
  EXPECT_EQ(event.at("seed"), 18446744073709551615ULL);
  EXPECT_EQ(event.at("learning_rate"), 2e-3);
  EXPECT_EQ(event.at("lr_schedule"), "wsd");
  EXPECT_EQ(event.at("warmup_steps"), 7);
  EXPECT_EQ(event.at("train_data"), "books/*.bin");
  EXPECT_EQ(event.at("training_tokens"), 4000);
  EXPECT_NE(event.at("command_line").at(0).get<std::string>().find("test_commands"), std::string::npos);
  for (const char* part : {"2026-12-01T00:00:00Z", "books/*.bin (4,000 tokens)", "0.002, wsd, 7 warm-up steps",
                           "18446744073709551615", "of the test", "a device", "test_commands"}) {
    EXPECT_NE(page().find(part), std::string::npos) << part;
  }
}

TEST_F(ScriptedLog, TheScreenShowsEveryNthStepAndQuietNothing) {
  testing::internal::CaptureStdout();
  {
    RunLog log = open({.log_every = 4});
    start(log);
    for (int s = 0; s < 10; ++s) log.step(report(s, 100));
  }
  std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_EQ(count(shown, "step "), 4) << "0, 4, 8 and the last:\n" << shown;
  EXPECT_EQ(events(log_text(), "step").size(), 10U);
  testing::internal::CaptureStdout();
  {
    RunLog log = open({.quiet = true});
    start(log);
    log.step(report(0, 100));
    log.validation(1, 2, 3.5);
    log.text("something");
    log.essential("note: a note");
    log.end("0123456789abcdef", 2.5, "rules");
  }
  shown = testing::internal::GetCapturedStdout();
  EXPECT_EQ(shown, "note: a note\nparameter_hash 0123456789abcdef  final loss 2.500000\n");
}

TEST_F(ScriptedLog, TheReportIsDrawnAtMostEveryTenSecondsAndSaysHowItEnded) {
  RunLog log = open();
  start(log);
  EXPECT_NE(page().find("No step was logged yet"), std::string::npos);
  EXPECT_NE(page().find("http-equiv='refresh'"), std::string::npos);
  EXPECT_NE(page().find(">running</span>"), std::string::npos);
  now_ += 9;
  log.step(report(0, 100));
  EXPECT_NE(page().find("No step was logged yet"), std::string::npos) << "nine seconds after the last time";
  now_ += 2;
  log.step(report(1, 100));
  EXPECT_NE(page().find("2 steps of 10"), std::string::npos) << page();
  EXPECT_NE(page().find("about 16 s left"), std::string::npos) << "8 steps of 2 s";
  log.stopped(2, "SIGTERM");
  EXPECT_NE(page().find("stopped by SIGTERM after 2 steps"), std::string::npos);
  EXPECT_EQ(page().find("http-equiv='refresh'"), std::string::npos);
  log.failed("rank 1: the disk is full");
  EXPECT_NE(page().find("failed: rank 1: the disk is full"), std::string::npos);
  log.end("0123456789abcdef", 2.5, "rules");
  EXPECT_NE(page().find(">finished</span>"), std::string::npos);
  EXPECT_NE(page().find("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(events(read_file(folder_ / "log.jsonl"), "end").at(0).at("arithmetic"), "rules");
}

TEST_F(ScriptedLog, AReportThatCannotBeWrittenEndsNoRun) {
  RunLog log = open();
  const std::string page_folder = folder_ / "report.html";
  std::filesystem::create_directory(page_folder);
  testing::internal::CaptureStdout();
  start(log);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("note: " + page_folder + " cannot be written"),
            std::string::npos);
}

TEST_F(ScriptedLog, ValidationsAndAnswersAreWhatTheirNamesSay) {
  RunLog log = open();
  testing::internal::CaptureStdout();
  log.validation(7, 2.0, 0.625);
  log.multiple_choice(7, {.questions = 8, .by_sum = 2, .by_token = 4, .by_byte = 6});
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_NE(shown.find("validation after 7 updates: loss 2.000000, perplexity 7.389, 0.6250 bits per byte"),
            std::string::npos)
      << shown;
  EXPECT_NE(shown.find("8 questions: right 25.00% by sum, 50.00% per token, 75.00% per byte"), std::string::npos)
      << shown;
  const Json validation = events(log_text(), "validation").at(0);
  EXPECT_EQ(validation.at("step"), 7);
  EXPECT_DOUBLE_EQ(validation.at("perplexity"), std::exp(2.0));
  const Json answers = events(log_text(), "multiple_choice").at(0);
  EXPECT_EQ(answers.at("by_sum"), 0.25);
  EXPECT_EQ(answers.at("by_token"), 0.5);
  EXPECT_EQ(answers.at("by_byte"), 0.75);
}

TEST_F(ScriptedLog, PlanAndMeasurementAreThoseOfThePlanAndTheStep) {
  PlanRequest request;
  request.model = {.layers = 3, .heads = 2, .hidden = 8, .vocab = 257, .max_seq_len = 16};
  request.batch = {.rows = 2, .seq_len = 16, .micro_batches = 1};
  request.schedule = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 1});
  request.partition = {3, 5};
  const Plan plan = make_plan(request);
  const Simulation predicted = simulate(request.schedule, Costs{});  // 6 ms
  RunLog log = open();
  log.plan(plan, predicted, 9.0);
  const Json said = events(log_text(), "plan").at(0);
  EXPECT_DOUBLE_EQ(said.at("tokens_per_s_predicted"), 2 * 16 / 0.006);
  EXPECT_EQ(said.at("step_ms_predicted"), 6);
  EXPECT_EQ(said.at("step_ms_predicted_uniform"), 9);
  EXPECT_EQ(said.at("stage_units"), (Json{{0, 3}, {3, 8}}));
  EXPECT_EQ(said.at("ranks").at(1).at("bytes"), plan.ranks[1].total_bytes());

  // Rank 0 works for 4 + 6 ms of 18, rank 1 for 2 + 4.
  const MeasuredStep step{
      .step = 7,
      .ranks = {{.actions = {{100, 100, 104}, {104, 112, 118}}, .lowered = {{'U', 118, 119, 121}}},
                {.actions = {{100, 105, 107}, {107, 107, 111}}, .lowered = {{'U', 118, 119, 120}}}}};
  log.measurement(request.schedule, analyse(request.schedule, step, predicted), 3, 0.01);
  const Json measured = events(log_text(), "measurement").at(0);
  EXPECT_EQ(measured.at("makespan_ms"), 18);
  EXPECT_DOUBLE_EQ(measured.at("bubble"), 1 - 16 / 36.0);
  EXPECT_DOUBLE_EQ(measured.at("bubble_span"), 1 - 10 / 18.0);
  EXPECT_DOUBLE_EQ(measured.at("bubble_predicted"), 0.5);
  EXPECT_EQ(measured.at("idle_ms"), 20);
  EXPECT_EQ(measured.at("stage_ms"), (Json{{"F", {4, 2}}, {"B", {6, 4}}}));
  EXPECT_EQ(measured.at("ranks").at(1).at("busy_ms"), 6);
  EXPECT_EQ(measured.at("ranks").at(0).at("update_ms"), 2);
  EXPECT_EQ(measured.at("ranks").at(1).at("waiting_ms"), 5);
}

TEST(Mfu, IsWorkOfTheTimeByPeak) {
  ModelConfig d12;
  d12.layers = 12;
  d12.heads = 12;
  d12.hidden = 768;
  d12.vocab = 50257;
  // 3 x 265956864 operations per token, 4096 tokens in half a second.
  EXPECT_DOUBLE_EQ(model_flops_utilisation(d12, 1024, 4096, 500, 100e12), 3 * 265956864.0 * 4096 / 0.5 / 100e12);
}

TEST(Estimate, SaysHowLongAndProposesASmallerModelBeyondAnHour) {
  ModelConfig d12;
  d12.layers = 12;
  d12.heads = 12;
  d12.hidden = 768;
  d12.vocab = 50257;
  EstimateRequest request{.model = d12, .seq_len = 256, .steps = 1000, .step_ms = 18000};
  std::vector<std::string> lines = estimate_lines(request);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "1000 steps of about 18 s: about 5 h");
  ModelConfig small = d12;
  small.layers = 4;
  small.heads = 4;
  small.hidden = 256;
  const double seconds =
      18000.0 * static_cast<double>(flops_per_token(small, 256)) / static_cast<double>(flops_per_token(d12, 256));
  ASSERT_LT(seconds, 3600);
  EXPECT_NE(lines[1].find("--layers 4 --heads 4 --hidden 256 takes about " + std::to_string(std::lround(seconds / 60)) +
                          " min"),
            std::string::npos)
      << lines[1];
  request.model_is_open = false;
  EXPECT_EQ(estimate_lines(request).size(), 1U);
  request = {.model = d12, .seq_len = 256, .steps = 1, .step_ms = 12.34};
  EXPECT_EQ(estimate_lines(request), std::vector<std::string>{"1 step of about 12.3 ms: about 1 s"});
}

}  // namespace
}  // namespace train_gpt::test
