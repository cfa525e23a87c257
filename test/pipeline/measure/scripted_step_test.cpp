// A step whose times the test sets: every figure made from it is computed here by hand.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "pipeline/measure/measured_timeline.h"
#include "pipeline/measure/step_analysis.h"
#include "pipeline/measure/trace.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/train/measurement.h"

namespace train_gpt {
namespace {

using Json = nlohmann::json;

// One micro-batch over two ranks, from 100 ms on the clock until 118: rank 0 is busy for 4 + 6 ms, rank 1 for 2 + 4.
MeasuredStep scripted_step() {
  return {
      .step = 7,
      .ranks = {
          {.actions = {{100, 100, 104}, {104, 112, 118}}, .lowered = {{'R', 118, 118.5, 119}, {'U', 119, 120, 123}}},
          {.actions = {{99, 105, 107}, {107, 107, 111}}, .lowered = {{'R', 111, 111, 119}, {'U', 119, 120, 122}}}}};
}

Schedule schedule() { return make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 1}); }

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

TEST(AnalysisTable, EveryFigureIsThatOfItsRankAndName) {
  const StepAnalysis analysis = analyse(schedule(), scripted_step(), simulate(schedule(), Costs{}));
  std::istringstream table(analysis_table(analysis, 8));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(table, line);) rows.push_back(words_of(line));
  ASSERT_EQ(rows.size(), 4U);
  // With equal ranks, F of 3 and B of 5 ms, the step takes 16 and each idles 8. Unequal ones take 16 as well. The rest
  // of the 18 is not hidden.
  EXPECT_EQ(rows[1], (std::vector<std::string>{"0", "10.00", "8.00", "8.00", "8.00", "-2.00", "0.00", "2.00", "0.50",
                                               "3.00", "5.00"}));
  EXPECT_EQ(rows[2], (std::vector<std::string>{"1", "6.00", "5.00", "12.00", "8.00", "2.00", "0.00", "2.00", "8.00",
                                               "2.00", "4.00"}));
  EXPECT_EQ(rows[3], (std::vector<std::string>{"all", "44.44%", "55.56%", "44.44%", "0.00%", "0.00%", "11.11%"}));
  EXPECT_EQ(analysis_summary(analysis),
            "18.00 ms from first to last action (predicted 6.00), bubble 55.6% (predicted 50.0%), span bubble 44.4% "
            "(predicted 50.0%); the longest update is 13.0% of the step");
}

TEST(StepBubble, OfTimesThatAreKnown) {
  const std::vector<RankTimes> ranks = {{.first_start = 100, .last_end = 118, .busy = 10},
                                        {.first_start = 105, .last_end = 111, .busy = 6}};
  const StepBubble step = step_bubble(ranks);
  EXPECT_DOUBLE_EQ(step.makespan, 18);
  EXPECT_DOUBLE_EQ(step.bubble, 1 - 16 / 36.0);
  EXPECT_DOUBLE_EQ(step.bubble_span, 1 - 10 / 18.0);
}

// Gathers belong to the step whose first actions they run beside, and may be complete before those begin.
TEST(MeasuredTimeline, BeginsWithTheFirstAction) {
  MeasuredStep step = scripted_step();
  step.ranks[0].lowered.push_back({'G', 98, 98.5, 99});
  step.ranks[1].lowered.push_back({'G', 98, 99, 105});
  const Timeline drawn = measured_timeline(schedule(), step, simulate(schedule(), Costs{}));
  ASSERT_EQ(drawn.rows.size(), 2U);
  EXPECT_EQ(drawn.rows[0].size(), 4U);  // F, B, R and U
  ASSERT_EQ(drawn.rows[1].size(), 5U);
  EXPECT_EQ(drawn.rows[1].front().letter, 'G');
  EXPECT_EQ(drawn.rows[1].front().start, 0);
  EXPECT_EQ(drawn.rows[1].front().end, 5);
}

TEST(Trace, TimesAreMicrosecondsFromTheFirstAction) {
  std::ostringstream text;
  write_trace(text, schedule(), {scripted_step()});
  std::map<std::pair<int, std::string>, std::pair<double, double>> slices;  // (rank, name) -> begin, duration
  int waits = 0;
  const Json trace = Json::parse(text.str());
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    waits += event.at("name") == "wait" ? 1 : 0;
    slices[{event.at("pid"), event.at("name")}] = {event.at("ts"), event.at("dur")};
  }
  const std::pair<double, double> first = {0, 4000}, update = {20000, 3000}, norm = {19000, 1000},
                                  waiting = {4000, 8000}, reduction = {11000, 8000}, backward = {7000, 4000};
  EXPECT_EQ((slices[{0, "0F0"}]), first);
  EXPECT_EQ((slices[{0, "wait"}]), waiting);
  EXPECT_EQ((slices[{0, "norm"}]), norm);
  EXPECT_EQ((slices[{0, "U"}]), update);
  EXPECT_EQ((slices[{1, "1B0"}]), backward);
  EXPECT_EQ((slices[{1, "R"}]), reduction);
  EXPECT_EQ(waits, 2) << "actions that did not wait have none";
}

}  // namespace
}  // namespace train_gpt
