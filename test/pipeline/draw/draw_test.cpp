// Pictures: what stands where in the text, that nothing is lost when it is folded, and that the SVG is whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "pipeline/draw/table.h"
#include "pipeline/draw/timeline.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {
namespace {

Timeline timeline_of(const ScheduleRequest& request, const Costs& costs = {}) {
  const Schedule schedule = make_schedule(request);
  return timeline(schedule, simulate(schedule, costs));
}

std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("rank")) rows.push_back(line);
  }
  return rows;
}

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

Timeline with_messages(const ScheduleRequest& request, const Costs& costs) {
  const Schedule schedule = make_schedule(request);
  const Simulation simulation = simulate(schedule, costs);
  Timeline result = timeline(schedule, simulation);
  add_messages(result, schedule, simulation, stage_costs(costs, schedule.placement));
  return result;
}

// F of rank 0 ends at 1, its message takes 0.5; F and B of rank 1 end at 2.5 and 4.5.
TEST(Messages, AreUnderWayFromTheEndOfTheirActionForAsLongAsTheHopTakes) {
  Costs costs;
  costs.latency = {0.5};
  const Timeline picture = with_messages({.name = "1f1b", .ranks = 2, .micro_batches = 1}, costs);
  ASSERT_EQ(picture.messages.size(), 2u);
  ASSERT_EQ(picture.messages[0].size(), 1u);
  ASSERT_EQ(picture.messages[1].size(), 1u);
  const TimelineMessage &activation = picture.messages[0][0], &gradient = picture.messages[1][0];
  EXPECT_DOUBLE_EQ(activation.sent, 1);
  EXPECT_DOUBLE_EQ(activation.arrives, 1.5);
  EXPECT_EQ(activation.destination, 1);
  EXPECT_EQ(activation.stage, 1);
  EXPECT_FALSE(activation.is_gradient);
  EXPECT_DOUBLE_EQ(gradient.sent, 4.5);
  EXPECT_DOUBLE_EQ(gradient.arrives, 5);
  EXPECT_EQ(gradient.destination, 0);
  EXPECT_EQ(gradient.stage, 0);
  EXPECT_TRUE(gradient.is_gradient);
}

// Two milliseconds each on the one channel: the second one, sent at 2, waits until 3.
TEST(Messages, OfOneChannelFollowEachOther) {
  Costs costs;
  costs.bandwidth = {1};
  costs.message_bytes = 2e6;
  const Timeline picture = with_messages({.name = "gpipe", .ranks = 2, .micro_batches = 2}, costs);
  ASSERT_EQ(picture.messages[0].size(), 2u);
  EXPECT_DOUBLE_EQ(picture.messages[0][0].arrives, 3);
  EXPECT_DOUBLE_EQ(picture.messages[0][1].sent, 2);
  EXPECT_DOUBLE_EQ(picture.messages[0][1].arrives, 5);
  EXPECT_EQ(picture.messages[0][1].micro_batch, 1);
}

TEST(Messages, HaveLanesOfTheirOwnOnlyWhereTheyTakeTime) {
  const ScheduleRequest request{.name = "1f1b", .ranks = 3, .micro_batches = 4};
  EXPECT_TRUE(with_messages(request, {}).messages.empty());
  Costs costs;
  costs.latency = {0.5};
  const std::string with = draw_svg({with_messages(request, costs)}), without = draw_svg({timeline_of(request, costs)});
  EXPECT_EQ(occurrences(with, "class='message'"), 2u * 2 * 4 + 2);  // two hops there and back, and the legend
  EXPECT_EQ(occurrences(without, "class='message'"), 0u);
  EXPECT_EQ(occurrences(with, "<title>gradient of micro-batch 3, rank 2 to rank 1, for 1B: "), 1u);
}

TEST(DrawText, OneForwardOneBackwardAsInTextbooks) {
  const std::string text = draw_text(timeline_of({.name = "1f1b", .ranks = 3, .micro_batches = 4}));
  EXPECT_EQ(rows_of(text), (std::vector<std::string>{
                               "rank 0 | F0 F1 F2 .  .  .  .  B0--- F3 B1--- .  B2--- .  B3---",
                               "rank 1 | .  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- .  .",
                               "rank 2 | .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  .  .",
                           }));
}

TEST(DrawText, NamesTheStageWhereARankHasSeveral) {
  const std::string text = draw_text(timeline_of({.name = "zb-v", .ranks = 2, .micro_batches = 3}));
  const std::vector<std::string> rows = rows_of(text);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].starts_with("rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 ")) << rows[0];
  EXPECT_TRUE(rows[1].starts_with("rank 1 | .   1F0 2F0 1F1 2F1 2I0 ")) << rows[1];
}

TEST(DrawText, UnequalCostsKeepTheirLengths) {
  const Costs costs{.forward = {2.0}, .input = {3.0}, .weight = {1.0}};
  const std::string text = draw_text(timeline_of({.name = "zb-h1", .ranks = 2, .micro_batches = 2}, costs));
  const std::vector<std::string> rows = rows_of(text);
  EXPECT_TRUE(rows[0].starts_with("rank 0 | F0--- F1--- .  .  .  I0------ W0 ")) << rows[0];
}

TEST(DrawText, FusedPairSharesItsPlace) {
  const Costs costs{.fused = {2.5}};
  const std::string text =
      draw_text(timeline_of({.name = "dualpipe", .ranks = 4, .micro_batches = 8}, costs), {.columns = 400});
  EXPECT_NE(text.find("0F3&7B5"), std::string::npos) << text;
}

TEST(DrawText, FoldingLosesNothing) {
  const Timeline picture = timeline_of({.name = "interleaved", .ranks = 4, .micro_batches = 12, .chunks = 2});
  const std::string text = draw_text(picture, {.columns = 100});
  EXPECT_NE(text.find("folded"), std::string::npos);
  for (const std::string& row : rows_of(text)) EXPECT_LE(row.size(), 100u);
  std::size_t labels = 0;
  for (const std::vector<TimelineBar>& row : picture.rows) {
    for (const TimelineBar& bar : row) {
      const std::string label = std::to_string(bar.stage) + bar.letter + std::to_string(bar.micro_batch);
      EXPECT_EQ(occurrences(text, " " + label + " ") + occurrences(text, " " + label + "-") +
                    occurrences(text, " " + label + "\n"),
                1u)
          << label;
      ++labels;
    }
  }
  EXPECT_EQ(labels, 4u * 12 * 2 * 2);
}

TEST(DrawText, TooWideIsScaledAndTooHighIsCut) {
  const std::string text =
      draw_text(timeline_of({.name = "1f1b", .ranks = 100, .micro_batches = 200}), {.columns = 90, .most_rows = 10});
  const std::vector<std::string> rows = rows_of(text);
  EXPECT_EQ(rows.size(), 10u);
  for (const std::string& row : rows) EXPECT_LE(row.size(), 90u);
  EXPECT_NE(text.find("90 ranks left out"), std::string::npos);
  EXPECT_NE(text.find("scaled down"), std::string::npos);
}

TEST(DrawSvg, HoldsEveryActionAndClosesEveryElement) {
  const Timeline picture = timeline_of({.name = "zb-v", .ranks = 4, .micro_batches = 8});
  const std::string svg = draw_svg({picture, timeline_of({.name = "1f1b", .ranks = 4, .micro_batches = 8})});
  EXPECT_EQ(occurrences(svg, "<title>"), 4u * 8 * 2 * 3 + 4u * 8 * 2);
  EXPECT_NE(svg.find("<title>7I3 on rank 0: "), std::string::npos);
  EXPECT_EQ(occurrences(svg, "<g>") + occurrences(svg, "<g "), occurrences(svg, "</g>"));
  EXPECT_EQ(occurrences(svg, "<text"), occurrences(svg, "</text>"));
  EXPECT_TRUE(svg.starts_with("<svg xmlns='http://www.w3.org/2000/svg'"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  for (const char* meaning :
       {"F forward", "B backward", "I backward, input gradient", "W backward, weight gradient", "idle", "chunk 1"}) {
    EXPECT_NE(svg.find(meaning), std::string::npos) << meaning;
  }
}

TEST(DrawSvg, EscapesWhatTheFileIsCalled) {
  Timeline picture = timeline_of({.name = "gpipe", .ranks = 1, .micro_batches = 1});
  picture.title = "a<b>&\x01.csv";
  EXPECT_NE(draw_svg({picture}).find("a&lt;b&gt;&amp;.csv"), std::string::npos);
}

TEST(DrawSvg, RefusesWhatNobodyCouldRead) {
  const Timeline picture = timeline_of({.name = "1f1b", .ranks = 64, .micro_batches = 2000});
  EXPECT_THROW(draw_svg({picture}), std::invalid_argument);
}

TEST(DrawTable, AlignsColumns) {
  EXPECT_EQ(draw_table({{"name", "ms"}, {"a", "1.5"}, {"longer", "12"}}), "name     ms\na       1.5\nlonger   12\n");
}

TEST(DrawTable, MarksTheBest) {
  const Simulation slow = simulate(make_schedule({.name = "gpipe", .ranks = 4, .micro_batches = 8}), Costs{});
  const Simulation fast = simulate(make_schedule({.name = "zb-v", .ranks = 4, .micro_batches = 8}), Costs{});
  const std::string table = compare_table({{"gpipe", 1, &slow}, {"zb-v", 2, &fast}}, false);
  EXPECT_NE(table.find("* zb-v"), std::string::npos) << table;
  EXPECT_EQ(occurrences(table, "*"), 2u);  // and the legend
  EXPECT_NE(table.find("27.27%"), std::string::npos);
}

}  // namespace
}  // namespace train_gpt
