// The parts of a report from events that the test writes: every figure stands beside the rank and stage that it belongs
// to.
#include "commands/report/report_parts.h"

#include <gtest/gtest.h>

#include "commands/report/report.h"
#include "test/commands/program.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::ordered_json;

// A V over two ranks: stage 1 and 2 live on rank 1.
Json plan() {
  return {{"event", "plan"},
          {"layers", 3},
          {"vocab", 257},
          {"stage_ranks", {0, 1, 1, 0}},
          {"stage_units", {{0, 2}, {2, 4}, {4, 6}, {6, 8}}},
          {"ranks",
           {{{"rank", 0}, {"bytes", 3 << 20}, {"memory", {{"parameters", 1 << 20}, {"scratch", 2 << 20}}}},
            {{"rank", 1}, {"bytes", 5 << 20}, {"memory", {{"parameters", 5 << 20}}}}}}};
}

TEST(ReportParts, MemoryStandsBesideItsRank) {
  const std::string page = memory_section(plan());
  for (const char* part : {"rank 0: parameters 1 MiB", "rank 0: scratch 2 MiB", "rank 1: parameters 5 MiB",
                           "<tr><td class='label'>parameters</td><td>1.0 MiB</td><td>5.0 MiB</td></tr>",
                           "<tr><td class='label'>scratch</td><td>2.0 MiB</td><td></td></tr>",
                           "<tr><td class='label'>total</td><td>3.0 MiB</td><td>5.0 MiB</td></tr>"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  }
}

TEST(ReportParts, StagesStandBesideTheirRanksUnitsAndTimes) {
  const Json measurement = {{"event", "measurement"}, {"stage_ms", {{"F", {1, 2, 3, 4}}, {"B", {5, 6, 7, 8}}}}};
  const std::string page = partition_section(plan(), measurement);
  for (const char* part :
       {"<tr><td>0</td><td>0</td><td class='label'>2: embedding to attention 0</td><td>1</td><td>5</td></tr>",
        "<tr><td>2</td><td>1</td><td class='label'>2: MLP 1 to attention 2</td><td>3</td><td>7</td></tr>",
        "<tr><td>3</td><td>0</td><td class='label'>2: MLP 2 to head</td><td>4</td><td>8</td></tr>"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  }
}

TEST(ReportParts, IdleTimeStandsBesideItsRankAndName) {
  const auto rank = [](int number, double first) {
    Json json = {{"rank", number}};
    for (const char* field : {"busy_ms", "idle_ms", "schedule_ms", "imbalance_ms", "jitter_ms", "communication_ms",
                              "reduction_ms", "update_ms", "post_flush_ms"}) {
      json[field] = first++;
    }
    return json;
  };
  const std::string page = idle_section({{"event", "measurement"}, {"ranks", {rank(0, 10), rank(1, 20)}}});
  EXPECT_NE(page.find("<tr><td class='label'>1</td><td>20</td><td>21</td><td>22</td><td>23</td><td>24</td><td>25</td>"
                      "<td>26</td><td>27</td><td>28</td></tr>"),
            std::string::npos)
      << page;
  for (const char* part : {"rank 1: busy 20 ms", "rank 1: schedule 22 ms", "rank 1: imbalance 23 ms",
                           "rank 1: jitter 24 ms", "rank 1: exposed communication 25 ms", "rank 0: busy 10 ms"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
}

TEST(ReportParts, BubblesAreCurvesInPerCent) {
  LoggedRun run;
  for (int step = 0; step < 2; ++step) {
    run.add({{"event", "step"}, {"step", step}, {"bubble", 0.2 + 0.2 * step}, {"bubble_predicted", 0.3}});
  }
  const std::string page = curves_over_steps(run);
  const std::string bubbles = page.substr(page.find("Bubble of every step"));
  EXPECT_NE(bubbles.find(">40%</text>"), std::string::npos) << bubbles;
}

TEST(ReportParts, ATimelineComesBackFromTheLog) {
  Timeline panel;
  panel.title = "zb-v";
  panel.note = "a note";
  panel.chunks = 2;
  panel.chunk_of_stage = {0, 1};
  panel.rows = {{{.start = 0.12345, .end = 1.5, .letter = 'F', .stage = 1, .micro_batch = 3},
                 {.start = 1.5, .end = 2, .letter = 'U'}}};
  const std::vector<Timeline> back = timelines_of(timeline_event(4, {panel}));
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].title, "zb-v");
  EXPECT_EQ(back[0].chunk_of_stage, panel.chunk_of_stage);
  ASSERT_EQ(back[0].rows.size(), 1U);
  ASSERT_EQ(back[0].rows[0].size(), 2U);
  const TimelineBar& bar = back[0].rows[0][0];
  EXPECT_DOUBLE_EQ(bar.start, 0.1235) << "to a tenth of a microsecond";
  EXPECT_DOUBLE_EQ(bar.end, 1.5);
  EXPECT_EQ(bar.letter, 'F');
  EXPECT_EQ(bar.stage, 1);
  EXPECT_EQ(bar.micro_batch, 3);
}

// ---- the log of a run --------------------------------------------------------------------------------------------

Json step_event(int step, double ms) { return {{"event", "step"}, {"step", step}, {"loss", 10 - step}, {"ms", ms}}; }

TEST(LoggedRun, AStepThatIsTakenAgainTakesTheOldOnesPlace) {
  LoggedRun run;
  for (int step = 0; step < 6; ++step) run.add(step_event(step, 100));
  run.add({{"event", "resume"}, {"step", 4}});
  for (int step = 4; step < 7; ++step) run.add(step_event(step, 50));
  ASSERT_EQ(run.ms.size(), 7U);
  for (std::size_t i = 0; i < run.ms.size(); ++i) {
    EXPECT_EQ(run.ms[i].first, static_cast<double>(i));
    EXPECT_EQ(run.ms[i].second, i < 4 ? 100 : 50);
  }
}

TEST(LoggedRun, TheMedianIsInTheMiddle) {
  EXPECT_EQ(median({{0, 9}, {1, 1}, {2, 5}, {3, 100}, {4, 2}}), 5);
  EXPECT_EQ(median({{0, 4}, {1, 1}}), 1);
}

TEST(HtmlReport, TheCommandCanBeTypedAgain) {
  LoggedRun run;
  run.add({{"event", "start"}, {"command_line", {"train_gpt", "--output", "it's here"}}});
  EXPECT_NE(html_report(run, RunCondition::over).find("train_gpt --output &#39;it&#39;\\&#39;&#39;s here&#39;"),
            std::string::npos);
}

}  // namespace
}  // namespace train_gpt::test
