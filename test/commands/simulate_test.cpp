// train_gpt simulate, from the words of the command line to what it prints and writes.
#include "commands/commands.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "commands/cli/options.h"

namespace train_gpt {
namespace {

struct Printed {
  std::string out, notices;
};

Printed run(const std::string& words) {
  std::vector<std::string> arguments{"simulate"};
  std::istringstream stream(words);
  for (std::string word; stream >> word;) arguments.push_back(word);
  std::ostringstream out, notices;
  EXPECT_EQ(run_simulate(parse_options(arguments), out, notices), 0);
  return {out.str(), notices.str()};
}

std::string refusal(const std::string& words) {
  try {
    run(words);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

class SimulateCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "train_gpt_simulate_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
};

TEST_F(SimulateCommand, JsonHoldsTheNamedFieldsInTheOrderAsked) {
  const Printed printed = run("--stages 4 --micro-batches 8 --schedule zb-v,1f1b,gpipe --json");
  const nlohmann::ordered_json array = nlohmann::ordered_json::parse(printed.out);
  ASSERT_EQ(array.size(), 3u);
  EXPECT_EQ(array[0]["schedule"], "zb-v");
  EXPECT_EQ(array[1]["schedule"], "1f1b");
  EXPECT_EQ(array[2]["schedule"], "gpipe");
  std::vector<std::string> fields;
  for (const auto& [name, value] : array[0].items()) fields.push_back(name);
  EXPECT_EQ(fields, (std::vector<std::string>{"schedule", "stages", "chunks", "micro_batches", "makespan", "bubble",
                                              "span", "bubble_span", "lower_bound", "peak_live", "messages"}));
  EXPECT_EQ(array[0]["chunks"], 2);
  EXPECT_EQ(array[0]["makespan"], 25.5);
  EXPECT_EQ(array[0]["bubble_span"], 0.0);
  EXPECT_EQ(array[1]["stages"], 4);
  EXPECT_EQ(array[1]["micro_batches"], 8);
  EXPECT_EQ(array[1]["bubble"].get<double>(), 1.0 - 24.0 * 4 / (4 * 33.0));
  EXPECT_EQ(array[1]["peak_live"], (std::vector<double>{4, 3, 2, 1}));
  EXPECT_EQ(array[1]["messages"], 2 * 3 * 8);
  EXPECT_EQ(array[1]["lower_bound"], 33.0);
}

TEST_F(SimulateCommand, JsonKeepsEveryDigit) {
  const Printed printed =
      run("--stages 3 --micro-batches 7 --schedule 1f1b --cost-forward 0.1 --cost-comm 0.0123456789 --json");
  const double makespan = nlohmann::json::parse(printed.out)[0]["makespan"];
  const auto again = nlohmann::json::parse(nlohmann::json(makespan).dump()).get<double>();
  EXPECT_EQ(makespan, again);
  EXPECT_NE(makespan, std::stod(std::to_string(makespan)));
}

TEST_F(SimulateCommand, SaysWhatOfReductionsIsExposed) {
  const std::string words = "--stages 4 --micro-batches 32 --schedule zb-v,1f1b --cost-reduction 1";
  const Printed table = run(words);
  EXPECT_NE(
      table.out.find("1f1b: with reductions over replicas a step takes 105.25 ms, of which they hold it up 0.238% "
                     "(0.943% if each waited for the end of its stage's last W, 0.943% if all waited for that of "
                     "a rank's list)"),
      std::string::npos)
      << table.out;
  const nlohmann::json array = nlohmann::json::parse(run(words + " --json").out);
  EXPECT_EQ(array[0]["reductions_exposed"], 0.125);
  EXPECT_EQ(array[1]["step_with_reductions"], 105.25);
}

TEST_F(SimulateCommand, AllLeavesOutWhatIsNotPossibleAndSaysWhy) {
  const Printed json = run("--stages 3 --micro-batches 4 --schedule all --json");
  const nlohmann::json array = nlohmann::json::parse(json.out);
  EXPECT_GT(array.size(), 5u);
  for (const auto& object : array) EXPECT_NE(object["schedule"], "dualpipe");
  EXPECT_NE(json.notices.find("not possible: dualpipe: "), std::string::npos) << json.notices;
  const Printed table = run("--stages 3 --micro-batches 4 --schedule all");
  EXPECT_NE(table.out.find("not possible: dualpipe: "), std::string::npos) << table.out;
  EXPECT_EQ(table.notices, "");
}

TEST_F(SimulateCommand, ANamedScheduleThatIsNotPossibleIsRefused) {
  EXPECT_NE(refusal("--stages 3 --micro-batches 8 --schedule dualpipe").find("dualpipe"), std::string::npos);
  EXPECT_NE(refusal("--stages 3 --micro-batches 8 --schedule 1f1b,dualpipe").find("dualpipe"), std::string::npos);
}

TEST_F(SimulateCommand, MemoryLimitLeavesOutWhatExceedsIt) {
  const Printed printed = run("--stages 4 --micro-batches 8 --schedule all --activation-limit 4 --json");
  for (const auto& object : nlohmann::json::parse(printed.out)) {
    for (const double live : object["peak_live"]) EXPECT_LE(live, 4.0) << object["schedule"];
  }
  for (const char* left_out :
       {"--activation-limit 4: gpipe (8)", "interleaved (5.5)", "breadth-first (8)", "zb-h2 (7)"}) {
    EXPECT_NE(printed.notices.find(left_out), std::string::npos) << printed.notices;
  }
  EXPECT_NE(refusal("--stages 4 --micro-batches 8 --schedule 1f1b --activation-limit 3").find("1f1b (4)"),
            std::string::npos);
}

TEST_F(SimulateCommand, WeightMemoryCountsInPeakLive) {
  const auto peak = [](const std::string& words) {
    const Printed printed = run("--stages 4 --micro-batches 8 --schedule zb-h2 --json " + words);
    return nlohmann::json::parse(printed.out)[0]["peak_live"][3].get<double>();
  };
  EXPECT_EQ(peak(""), 7.0);
  EXPECT_LT(peak("--weight-memory 0.5"), 7.0);
}

TEST_F(SimulateCommand, TellsDetailsOfASingleSchedule) {
  const Printed printed = run("--stages 4 --micro-batches 8 --schedule 1f1b --ascii");
  EXPECT_NE(printed.out.find("no costs given: 1 ms each"), std::string::npos) << printed.out;
  EXPECT_NE(printed.out.find("rank 0 | F0 F1 F2 F3 .  .  .  .  .  .  B0--- F4 B1--- "), std::string::npos);
  EXPECT_NE(printed.out.find("3 -> 2 gradients"), std::string::npos);
  EXPECT_NE(printed.out.find("critical path: "), std::string::npos);
}

TEST_F(SimulateCommand, BandwidthNeedsTheSizeOfAMessage) {
  // 4 rows of 256 tokens of 384 channels of 4 bytes at 1 GB/s: 1.572864 ms.
  const auto makespan = [](const std::string& words) {
    const Printed printed = run("--stages 2 --micro-batches 1 --schedule gpipe --json " + words);
    return nlohmann::json::parse(printed.out)[0]["makespan"].get<double>();
  };
  EXPECT_DOUBLE_EQ(makespan("--cost-bandwidth 1"), 6.0 + 2 * 1.572864);
  EXPECT_DOUBLE_EQ(makespan("--cost-bandwidth 1 --precision bf16 --hidden 768 --heads 12 --layers 12"),
                   6.0 + 2 * 1.572864);
  EXPECT_DOUBLE_EQ(makespan("--cost-bandwidth 2 --cost-comm 0.5"), 6.0 + 2 * (0.786432 + 0.5));
}

TEST_F(SimulateCommand, CsvComesBackAsTheSameSchedule) {
  const std::string file = path("interleaved.csv");
  const Printed first = run("--stages 4 --micro-batches 8 --schedule interleaved --json --csv " + file);
  const Printed second = run("--json --schedule-file " + file);
  nlohmann::json expected = nlohmann::json::parse(first.out)[0];
  nlohmann::json found = nlohmann::json::parse(second.out)[0];
  expected.erase("schedule");
  found.erase("schedule");
  EXPECT_EQ(found, expected);
  EXPECT_NE(refusal("--schedule-file " + file + " --stages 3").find("--stages 3"), std::string::npos);
  EXPECT_NE(refusal("--schedule-file " + file + " --micro-batches 9").find("--micro-batches 9"), std::string::npos);
}

TEST_F(SimulateCommand, AFileThatCannotRunIsRefused) {
  const std::string file = path("blocked.csv");
  std::ofstream(file) << "0B0,0F0\n1F0,1B0\n";
  EXPECT_NE(refusal("--schedule-file " + file), "");
  EXPECT_NE(refusal("--schedule-file " + path("missing.csv")).find("missing.csv"), std::string::npos);
}

TEST_F(SimulateCommand, DrawsAllThatWasAskedFor) {
  const std::string file = path("picture.svg");
  run("--stages 4 --micro-batches 8 --schedule 1f1b,zb-v --svg " + file);
  const std::string svg = content(file);
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_NE(svg.find("1f1b: p = 4, v = 1, m = 8"), std::string::npos);
  EXPECT_NE(svg.find("zb-v: p = 4, v = 2, m = 8"), std::string::npos);
  EXPECT_THROW(run("--stages 4 --schedule 1f1b --svg " + path("no/such/folder.svg")), std::runtime_error);
}

// The command stands below the picture in README.md.
TEST_F(SimulateCommand, ThePictureOfReadmeIsWhatTheProgramDraws) {
  const std::string file = path("schedules.svg");
  run("--stages 4 --micro-batches 6 --schedule 1f1b,zb-h1,zb-v --svg " + file);
  EXPECT_EQ(content(file), content("docs/schedules.svg")) << "draw it again: see README.md";
}

TEST_F(SimulateCommand, CostsThatDoNotFitOneScheduleLeaveItOutOfAll) {
  const Printed printed = run("--stages 2 --micro-batches 8 --schedule all --cost-forward 1,2,3,4 --json");
  for (const auto& object : nlohmann::json::parse(printed.out)) EXPECT_EQ(object["chunks"], 2);
  EXPECT_NE(printed.notices.find("--cost-forward: 4 values"), std::string::npos) << printed.notices;
}

TEST_F(SimulateCommand, AutoNeverLosesToANamedSchedule) {
  const std::string sizes =
      "--stages 4 --micro-batches 8 --cost-forward 1.2 --cost-weight 0.7 --activation-limit 4 --json ";
  const nlohmann::json found = nlohmann::json::parse(run(sizes + "--schedule auto").out)[0];
  EXPECT_EQ(found["schedule"], "auto");
  EXPECT_LE(found["lower_bound"], found["makespan"]);
  for (const double live : found["peak_live"]) EXPECT_LE(live, 4.0 + 1e-9);
  for (const auto& named : nlohmann::json::parse(run(sizes + "--schedule all").out)) {
    EXPECT_LE(found["makespan"].get<double>(), named["makespan"].get<double>() + 1e-9) << named["schedule"];
  }
}

TEST_F(SimulateCommand, ExpectationsDecideTheStatus) {
  const auto status = [](const std::string& conditions) {
    std::ostringstream out, notices;
    const int code = run_simulate(parse_options({"simulate", "--stages", "4", "--micro-batches", "8", "--schedule",
                                                 "1f1b", "--expect", conditions}),
                                  out, notices);
    return std::pair{code, out.str()};
  };
  EXPECT_EQ(status("makespan<=33,peak<=4").first, 0);
  const auto [code, text] = status("makespan<=33,peak<=3");
  EXPECT_EQ(code, 1);
  EXPECT_NE(text.find("expected of 1f1b: makespan<=33: yes, 33\n"), std::string::npos) << text;
  EXPECT_NE(text.find("expected of 1f1b: peak<=3: no, 4\n"), std::string::npos) << text;
}

TEST_F(SimulateCommand, PageHoldsEveryActionOfOneSchedule) {
  run("--stages 3 --micro-batches 2 --schedule zb-h1 --html " + path("page.html"));
  const std::string page = content(path("page.html"));
  for (const char* part : {"<title>zb-h1, p = 3, m = 2</title>", "['F',0,0,0,1]", "['F',1,1,2,3]", "['W',2,1,",
                           "{previous:-1,next:1},{previous:0,next:2},{previous:1,next:-1}", "makespan:"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("http://"), page.find("http://www.w3.org/2000/svg"));  // nothing is loaded
  EXPECT_NE(refusal("--stages 2 --schedule gpipe,1f1b --html " + path("two.html")).find("--html shows one schedule"),
            std::string::npos);
  EXPECT_NE(
      refusal("--stages 8 --micro-batches 2000 --schedule 1f1b --html " + path("long.html")).find("32000 actions"),
      std::string::npos);
}

TEST_F(SimulateCommand, ParetoComparesTimeAndMemory) {
  const std::string table =
      run("--stages 4 --micro-batches 8 --schedule auto --pareto --svg " + path("pareto.svg")).out;
  EXPECT_NE(table.find("\n  gpipe "), std::string::npos) << table;
  EXPECT_NE(table.find("* auto, limit 1 "), std::string::npos) << table;
  EXPECT_NE(content(path("pareto.svg")).find(">gpipe</text>"), std::string::npos);
  EXPECT_NE(refusal("--stages 4 --schedule 1f1b --pareto").find("give --schedule auto"), std::string::npos);
}

TEST_F(SimulateCommand, NeverFlushing) {
  const std::string sizes = "--stages 8 --micro-batches 8 --schedule ";
  const auto json = nlohmann::json::parse(run(sizes + "2bw,1f1b --json").out);
  EXPECT_EQ(json[0].at("steps"), 12);
  EXPECT_EQ(json[0].at("micro_batches"), 8);
  EXPECT_NEAR(json[0].at("steady_bubble").get<double>(), 0, 1e-12);
  EXPECT_NEAR(json[0].at("steady_period").get<double>(), 24, 1e-9);
  EXPECT_NEAR(json[0].at("makespan").get<double>(), 12 * 24 + 21, 1e-9);
  EXPECT_FALSE(json[1].contains("steady_bubble"));
  const std::string text = run(sizes + "2bw").out;
  EXPECT_NE(text.find("24 ms with a bubble of 0.00%"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 0 runs 1 forwards and backwards"), std::string::npos) << text;
  EXPECT_NE(text.find("nobody waits for their norm"), std::string::npos) << text;
  const std::string short_run = "--stages 3 --micro-batches 2 --steps 6 --schedule ";
  const std::string stashing = run(short_run + "pipedream,2bw --svg " + path("versions.svg")).out;
  EXPECT_NE(stashing.find("pipedream: rank 0 keeps 3 versions"), std::string::npos) << stashing;
  const std::string picture = content(path("versions.svg"));
  EXPECT_NE(picture.find("0B3 on rank 0, with version 1:"), std::string::npos) << "pipedream";
  EXPECT_NE(picture.find("0B7 on rank 0, with version 2:"), std::string::npos) << "2bw";
  EXPECT_NE(picture.find("2B11 on rank 2, with version 11:"), std::string::npos) << "the last rank has the newest";
  EXPECT_NE(refusal(short_run + "1f1b").find("--steps has no meaning for --schedule 1f1b"), std::string::npos);
  EXPECT_NE(refusal("--stages 3 --schedule 2bw --steps 5").find("--steps"), std::string::npos);
  EXPECT_NE(refusal(sizes + "2bw --warmup-factor 2").find("at least 14"), std::string::npos);
  EXPECT_NE(refusal(sizes + "1f1b --warmup-factor 2").find("2bw takes it"), std::string::npos);
  EXPECT_NE(refusal("--stages 8 --micro-batches 6 --schedule 2bw").find("at least 7"), std::string::npos);
}

}  // namespace
}  // namespace train_gpt
