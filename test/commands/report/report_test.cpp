// A run leaves a trace, a picture, a report, and the log's account of where the time went.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "test/commands/program.h"
#include "test/commands/well_formed.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;

class ReportedRun : public testing::Test {
 protected:
  ReportedRun() {
    const std::vector<char> tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
    write_file(folder_ / "train.bin", tokens.data(), tokens.size());
  }
  std::string arguments() const {
    return "--train-data " + (folder_ / "train.bin") + " --val-data " + (folder_ / "train.bin") +
           " --layers 2 --heads 2 --hidden 32 --seq-len 16 --micro-batch-size 1 --micro-batches 4 --val-every 5 "
           "--val-batches 1 --threads 1 --overwrite --output " +
           (folder_ / "out");
  }
  std::string log() const { return read_file(folder_ / "out/log.jsonl"); }

  Folder folder_;
};

TEST_F(ReportedRun, TraceAndPictureAndReportAreWrittenAndWhole) {
  const ProgramRun run = run_program(2, arguments() + " --schedule zb-h1 --steps 12 --trace " +
                                            (folder_ / "trace.json") + " --svg " + (folder_ / "step.svg"));
  ASSERT_EQ(run.status, 0) << run.output;
  for (const char* part : {"= schedule", "+ imbalance", "+ jitter", "+ communication", "post-flush", "(predicted "}) {
    EXPECT_NE(run.output.find(part), std::string::npos) << part << "\n" << run.output;
  }

  const Json trace = Json::parse(read_file(folder_ / "trace.json"));
  int actions = 0, starts = 0, ends = 0;
  for (const Json& event : trace.at("traceEvents")) {
    actions += event.at("ph") == "X" && event.at("args").contains("micro_batch") ? 1 : 0;
    starts += event.at("ph") == "s" ? 1 : 0;
    ends += event.at("ph") == "f" ? 1 : 0;
  }
  EXPECT_EQ(actions, 8 * 2 * 4 * 3) << "the last 8 of 12 steps, 2 ranks, 4 micro-batches, F I W";
  EXPECT_EQ(starts, 8 * 2 * 4);
  EXPECT_EQ(ends, starts);

  const std::string svg = read_file(folder_ / "step.svg");
  EXPECT_LT(svg.find("measured, step"), svg.find("predicted: "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));

  const std::string html = read_file(folder_ / "out/report.html");
  for (const char* part :
       {"<b>Loss</b>", "validation loss", "<b>Learning rate</b>", "<b>Gradient norm</b>", "<b>Throughput</b>",
        "<b>Bubble of every step</b>", "<h2>Timeline of step ", "measured, step", "predicted: zb-h1",
        "<h2>Idle time explained</h2>", "exposed communication", "<h2>Memory per rank</h2>", "first moment",
        "<h2>Partition</h2>", "embedding", "head"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(count(html, "<svg "), count(html, "</svg>"));
  EXPECT_EQ(count(html, "<svg "), 8) << "five curves, the timeline, idle time, memory";
  EXPECT_EQ(flaw_in_markup(html), "");
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
  EXPECT_EQ(count(html, "http://"), count(html, "xmlns='http://www.w3.org/")) << "it must open without a network";
}

TEST_F(ReportedRun, TheLogAccountsForAllIdleTime) {
  const ProgramRun run = run_program(2, arguments() + " --schedule 1f1b --steps 3");
  ASSERT_EQ(run.status, 0) << run.output;
  std::istringstream lines(log());
  Json measurement;
  for (std::string line; std::getline(lines, line);) {
    Json event = Json::parse(line);
    if (event.at("event") == "measurement") measurement = std::move(event);
  }
  ASSERT_TRUE(measurement.is_object());
  const auto parts = [](const Json& it) {
    double sum = 0;
    for (const char* part : {"schedule_ms", "imbalance_ms", "jitter_ms", "communication_ms"}) {
      sum += it.at(part).get<double>();
    }
    return sum;
  };
  const double makespan = measurement.at("makespan_ms");
  double idle = 0;
  ASSERT_EQ(measurement.at("ranks").size(), 2U);
  for (const Json& rank : measurement.at("ranks")) {
    EXPECT_NEAR(parts(rank), rank.at("idle_ms").get<double>(), 1e-9);
    EXPECT_NEAR(rank.at("busy_ms").get<double>() + rank.at("idle_ms").get<double>(), makespan, 1e-9);
    EXPECT_GT(rank.at("update_ms").get<double>(), 0);
    idle += rank.at("idle_ms").get<double>();
  }
  EXPECT_NEAR(parts(measurement), idle, 1e-9);
  EXPECT_NEAR(measurement.at("bubble").get<double>(), idle / (2 * makespan), 1e-9);
  EXPECT_EQ(measurement.at("steps_kept"), 3);
  EXPECT_GT(measurement.at("measuring_share").get<double>(), 0);
  EXPECT_LT(measurement.at("measuring_share").get<double>(), 1);
}

TEST_F(ReportedRun, TheTimedDeviceHasTimesButNoLosses) {
  const ProgramRun run = run_program(3,
                                     "--device timed --cost-forward 1 --cost-input 1 --cost-weight 1 --schedule 1f1b "
                                     "--micro-batches 4 --seq-len 16 --steps 2 --output " +
                                         (folder_ / "out"));
  ASSERT_EQ(run.status, 0) << run.output;
  const std::string html = read_file(folder_ / "out/report.html");
  EXPECT_EQ(html.find("<b>Loss</b>"), std::string::npos);
  EXPECT_NE(html.find("<b>Bubble of every step</b>"), std::string::npos);
  EXPECT_EQ(html.find(">R on rank"), std::string::npos) << "nothing is reduced";
  EXPECT_NE(html.find(">2F3 on rank 2: "), std::string::npos);
}

TEST_F(ReportedRun, IsDrawnFromTheLogOfARunThatWasKilled) {
  const ProgramRun run = run_program(2, arguments() + " --steps 3");
  ASSERT_EQ(run.status, 0) << run.output;
  const std::string whole = read_file(folder_ / "out/report.html");
  ASSERT_EQ(run_program(0, "report " + (folder_ / "out")).status, 0);
  EXPECT_EQ(read_file(folder_ / "out/report.html"), whole) << "the log alone makes the same page";

  const std::string text = log();
  const std::string killed = text.substr(0, text.find("{\"event\":\"measurement\"") + 30);
  write_file(folder_ / "out/log.jsonl", killed.data(), killed.size());
  std::filesystem::remove(folder_ / "out/report.html");
  const ProgramRun again = run_program(0, "report " + (folder_ / "out"));
  ASSERT_EQ(again.status, 0) << again.output;
  const std::string html = read_file(folder_ / "out/report.html");
  EXPECT_EQ(flaw_in_markup(html), "");
  for (const char* part : {"ended without a word", "3 steps of 3", "<b>Loss</b>", "<h2>Memory per rank</h2>"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(html.find("<h2>Timeline"), std::string::npos);
  EXPECT_EQ(run_program(0, "report " + (folder_ / "none")).status, 2);
}

TEST_F(ReportedRun, OneStepIsAPointInEveryCurve) {
  const ProgramRun run = run_program(1, arguments() + " --steps 1");
  ASSERT_EQ(run.status, 0) << run.output;
  const std::string html = read_file(folder_ / "out/report.html");
  EXPECT_EQ(count(html, "<figure>"), 5);
  EXPECT_EQ(count(html, "<circle "), 5 + 2 + 1) << "a point each, two of validation, one more of the prediction";
  EXPECT_EQ(html.find("points=''/>\n</svg>"), std::string::npos);
}

TEST_F(ReportedRun, AFileThatCannotBeWrittenIsRefusedBeforeTheWork) {
  for (const std::string option : {"--trace", "--svg"}) {
    const ProgramRun run = run_program(2, arguments() + " --steps 1 " + option + " " + (folder_ / "none/file"));
    EXPECT_EQ(run.status, 2) << run.output;
    EXPECT_EQ(count(run.output, "train_gpt: error: " + option), 1) << run.output;
    EXPECT_EQ(count(run.output, "step "), 0) << run.output;
  }
}

}  // namespace
}  // namespace train_gpt::test
