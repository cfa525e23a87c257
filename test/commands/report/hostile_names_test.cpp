// Names and texts that come from elsewhere: nothing in them moves the cursor of a terminal, and pages and pictures stay
// well formed.
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "commands/report/report.h"
#include "test/commands/program.h"
#include "test/commands/well_formed.h"

namespace train_gpt::test {
namespace {

// An escape sequence, markup, quotes, a byte that is not UTF-8, and CSI as a character of its own.
const std::string kHostile =
    "a<b>&\"\x1b]0;owned\x07\xff\xc2\x9b"
    "2J";

bool moves_the_cursor(const std::string& output) {
  for (const char c : output) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f || byte == 0x9b) return true;
  }
  return false;
}

TEST(WellFormed, TheCheckNoticesWhatIsNot) {
  EXPECT_EQ(flaw_in_markup("<a b='c &lt; d'><e/>f &#183; g</a>\n"), "");
  for (const char* text : {"<a>", "<a></b>", "<a b=c/>", "<a b='<'/>", "<a>&nbsp;</a>", "<a>\x1b</a>", "<a>\xff</a>",
                           "<a/><b/>", "a", "<a b='c/>", "<a 'b'/>"}) {
    EXPECT_NE(flaw_in_markup(text), "") << text;
  }
}

TEST(HostileNames, OfFoldersAndFilesOfARun) {
  const Folder folder;
  const std::string hostile = folder / kHostile;
  std::filesystem::create_directory(hostile);
  std::string text;
  for (int i = 0; i < 400; ++i) text += "some words " + std::to_string(i);
  write_file(hostile + "/t.txt", text.data(), text.size());
  const ProgramRun prepared = run_program(0, "prepare --text '" + hostile + "/t.txt' --output '" + hostile + "/t.bin'");
  ASSERT_EQ(prepared.status, 0) << prepared.output;
  EXPECT_FALSE(moves_the_cursor(prepared.output)) << prepared.output;
  const std::string train = "train --train-data '" + hostile + "/t.bin' --layers 1 --heads 1 --hidden 16 --seq-len 8 " +
                            "--micro-batch-size 1 --micro-batches 2 --threads 1 --output '" + hostile + "/run'";
  const ProgramRun run = run_program(0, train + " --steps 2");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_FALSE(moves_the_cursor(run.output)) << run.output;
  EXPECT_EQ(flaw_in_markup(read_file(hostile + "/run/report.html")), "");
  for (const std::string& command : std::vector<std::string>{
           "status '" + hostile + "/run'", "report '" + hostile + "/run'", "status '" + hostile + "'",
           "report '" + hostile + "'", "generate --tokens 3 --init '" + hostile + "/run'",
           train + " --steps 3",  // there is a run already
           "evaluate --val-data '" + hostile + "/none' --init '" + hostile + "/none'",
           "--train-data '" + kHostile + "' --" + "'" + kHostile + "'"}) {
    const ProgramRun it = run_program(0, command);
    EXPECT_FALSE(moves_the_cursor(it.output)) << command << "\n" << it.output;
    EXPECT_NE(it.output, "");
  }
  EXPECT_EQ(flaw_in_markup(read_file(hostile + "/run/report.html")), "") << "drawn anew";
}

TEST(HostileNames, OfASchedule) {
  const Folder folder;
  const std::string file = folder / (kHostile + ".csv");
  ASSERT_EQ(run_program(0, "simulate --stages 2 --micro-batches 2 --csv '" + file + "'").status, 0);
  const ProgramRun run =
      run_program(0, "simulate --schedule-file '" + file + "' --ascii --svg '" + (folder / "a.svg") + "'");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_FALSE(moves_the_cursor(run.output)) << run.output;
  EXPECT_EQ(flaw_in_markup(read_file(folder / "a.svg")), "");
}

TEST(HostileLog, MakesAWellFormedPage) {
  const auto json = [](const std::string& text) { return nlohmann::ordered_json::parse(text); };
  LoggedRun run;
  run.add(json(
      R"({"event":"start","time":"</h1>","command_line":["<script>alert(1)</script>",3],"seed":"x","steps":"many"})"));
  run.add(json(
      R"({"event":"plan","schedule":"a&b<","ranks":[3,{"bytes":"no","memory":{"<x>":1e300,"y":null}}],"stage_units":[[0],"a",[5,9]],"layers":-3})"));
  run.add(json(R"({"event":"step","step":1e300,"loss":1e308,"ms":-1,"bubble":5})"));
  run.add(json(R"({"event":"measurement","step":-1,"ranks":[null,{"rank":"z"}],"stage_ms":{"F<":[1,"b"],"G":3}})"));
  run.add(json(
      R"({"event":"timeline","panels":[{"title":"</svg>","note":"&","chunks":-1,"chunk_name":"<","chunk_of_stage":[7],"rows":[[[0,1,"F",0,0,0],[5,2,"W",2,9,-1]]]}]})"));
  run.add(json(R"({"event":"failure","message":"<b>\u001b[2J"})"));
  EXPECT_EQ(flaw_in_markup(html_report(run, RunCondition::over)), "");
  EXPECT_EQ(timelines_of(json(R"({"panels":[{"title":3}]})")).size(), 0U);
  EXPECT_EQ(timelines_of(json("3")).size(), 0U);
  EXPECT_EQ(flaw_in_markup(html_report(LoggedRun{}, RunCondition::running)), "") << "a log without any event";
}

}  // namespace
}  // namespace train_gpt::test
