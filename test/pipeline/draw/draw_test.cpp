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
