// Numbers and places in pictures and tables, computed here a second time.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "pipeline/draw/chart.h"
#include "pipeline/draw/table.h"
#include "pipeline/draw/timeline.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {
namespace {

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// The cells of a table's line, counted from 0.
std::vector<std::string> row(const std::string& table, int line) {
  std::istringstream in(table);
  std::string text;
  for (int i = 0; i <= line; ++i) std::getline(in, text);
  return words_of(text);
}

// ---- charts: the plot has 864 x 220 pixels from (76, 30) on ------------------------------------------------------

TEST(Chart, PointsLieWhereTheirValuesAre) {
  const std::string svg = draw_curves({{"loss", "red", {{0, 0}, {1, 10}, {1.5, NAN}, {2, 5}}, false}},
                                      {.x_name = "step", .y_name = "loss", .marks = {-5, 1, 99}});
  EXPECT_NE(svg.find("points='76.0,250.0 508.0,30.0 940.0,140.0 '"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(occurrences(svg, "class='mark'"), 1U) << "two of the three lie outside";
  EXPECT_NE(svg.find("<line class='mark' x1='508.0'"), std::string::npos);
}

TEST(Chart, OfManyPointsEachColumnHasItsLowestAndItsHighest) {
  Curve curve{"zigzag", "red", {}, false};
  for (int i = 0; i < 20000; ++i) curve.points.emplace_back(i, i % 2);
  const std::string svg = draw_curves({curve}, {.x_name = "step", .y_name = "y"});
  EXPECT_GE(occurrences(svg, ",30.0 "), 864U);
  EXPECT_GE(occurrences(svg, ",250.0 "), 864U);
  EXPECT_LE(occurrences(svg, ",250.0 "), 865U);
}

TEST(Chart, PartsOfABarFollowEachOtherAndNegativeOnesGoLeft) {
  const std::string svg = draw_stacked_bars({.parts = {{"a", "red"}, {"b", "green"}, {"c", "blue"}},
                                             .rows = {"rank 0"},
                                             .values = {{3, 2, -1}},
                                             .unit = "ms"});
  // From -1 to 5 are 864 pixels: 144 each, and zero is at 220.
  for (const char* bar : {"<rect x='220.00' y='31.0' width='432.00'", "<rect x='652.00' y='31.0' width='288.00'",
                          "<rect x='76.00' y='31.0' width='144.00'"}) {
    EXPECT_NE(svg.find(bar), std::string::npos) << bar << "\n" << svg;
  }
  EXPECT_NE(svg.find("rank 0: b 2 ms"), std::string::npos);
}

// ---- timelines ---------------------------------------------------------------------------------------------------

// F takes 1 ms, B 2: rank 0 runs F from 0 to 1 and B from 4 to 6, rank 1 both in between.
Timeline two_ranks() {
  const Schedule schedule = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 1});
  return timeline(schedule, simulate(schedule, Costs{}));
}

double number_behind(const std::string& text, const std::string& word, std::size_t from) {
  return std::stod(text.substr(text.find(word, from) + word.size()));
}

TEST(DrawSvg, BarsLieInTheRowOfTheirRankAndTellTheirTimes) {
  const std::string svg = draw_svg({two_ranks()});
  for (const auto& [rank, title] :
       {std::pair{0, "0F0 on rank 0: 0 to 1 ms"}, std::pair{1, "1F0 on rank 1: 1 to 2 ms"},
        std::pair{1, "1B0 on rank 1: 2 to 4 ms"}, std::pair{0, "0B0 on rank 0: 4 to 6 ms"}}) {
    const std::size_t bar = svg.find(std::string("<title>") + title + "</title>");
    ASSERT_NE(bar, std::string::npos) << title;
    std::size_t row = svg.find("class='idle'");
    row = rank == 0 ? row : svg.find("class='idle'", row + 1);
    EXPECT_EQ(number_behind(svg, "y='", bar), number_behind(svg, "y='", row)) << title;
  }
}

TEST(DrawSvg, TheFlushEndsWithTheLastAction) {
  Timeline picture = two_ranks();
  picture.rows[0].push_back({.start = 6, .end = 9, .letter = 'U'});
  // 9 ms are 960 pixels from 70 on.
  EXPECT_NE(draw_svg({picture}).find("<line class='end' x1='710.00'"), std::string::npos);
}

TEST(DrawText, SaysWhatACharacterStandsFor) {
  // `F0 ` has three characters, and F takes 1 ms.
  EXPECT_NE(draw_text(two_ranks()).find("one character is 0.333 ms of 6;"), std::string::npos)
      << draw_text(two_ranks());
}

TEST(DrawText, TheNoteHasTheFiguresOfTheSimulation) {
  const Schedule schedule = make_schedule({.name = "zb-h2", .ranks = 3, .micro_batches = 5});
  const Timeline picture = timeline(schedule, simulate(schedule, Costs{}));
  double end = 0, span = 0, busy = 0, longest = 0;
  for (const std::vector<TimelineBar>& bars : picture.rows) {
    double own = 0;
    for (const TimelineBar& bar : bars) own += bar.end - bar.start;
    end = std::max(end, bars.back().end);
    span = std::max(span, bars.back().end - bars.front().start);
    busy += own;
    longest = std::max(longest, own);
  }
  ASSERT_NE(end, span);
  char expected[200];
  std::snprintf(expected, sizeof expected, "makespan %.6g ms, bubble %.1f%%, span bubble %.1f%%, at most 5 live", end,
                100 * (1 - busy / (3 * end)), 100 * (1 - longest / span));
  EXPECT_TRUE(picture.note.starts_with(expected)) << picture.note << "\n" << expected;
}

// ---- tables ------------------------------------------------------------------------------------------------------

TEST(DrawTable, ShowsWhatRanksAndChannelsDid) {
  const Schedule schedule = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 2});
  Costs costs;
  costs.bandwidth = {1};
  costs.message_bytes = 2.5e6;
  const Simulation measured = simulate(schedule, costs, {.critical_path = true});
  // F 1 ms, B 2 ms, a message 2.5 ms; rank 0 ends when its second B does.
  EXPECT_EQ(row(channel_table(measured, 8), 0), (std::vector<std::string>{"channel", "messages", "slots", "MB"}));
  EXPECT_EQ(row(channel_table(measured, 8), 1),
            (std::vector<std::string>{"0", "->", "1", "activations", "2", "2", "5"}));
  const Schedule one = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 1});
  const Simulation free = simulate(one, Costs{}, {.critical_path = true});
  EXPECT_EQ(row(rank_table(free, 8), 2), (std::vector<std::string>{"1", "3", "50.00%", "1", "4", "1", "0"}));
  EXPECT_EQ(critical_path_summary(one, free),
            "critical path: 2 F 2 B (6 ms) and 2 hops (0 ms), from 0F0 on rank 0 to 0B0 on rank 0\n");
}

TEST(DrawTable, ComparesByWhatIsAskedForAndCountsSlots) {
  Simulation a = simulate(make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 2}), Costs{});
  Simulation b = a;
  a.makespan = 10, a.span = 9;
  b.makespan = 11, b.span = 8;
  a.channels[0].longest_queue = 5;
  const std::string by_makespan = compare_table({{"one", 1, &a}, {"two", 1, &b}}, /*by_span=*/false);
  EXPECT_EQ(row(by_makespan, 1).front(), "*") << by_makespan;
  EXPECT_EQ(row(by_makespan, 1).back(), "5");
  EXPECT_EQ(row(by_makespan, 2).back(), "2") << "a channel has at least two";
  const std::string by_span = compare_table({{"one", 1, &a}, {"two", 1, &b}}, /*by_span=*/true);
  EXPECT_EQ(row(by_span, 2).front(), "*") << by_span;
  EXPECT_NE(by_span.find("* smallest span"), std::string::npos);
}

}  // namespace
}  // namespace train_gpt
