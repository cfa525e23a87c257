// Every option of `train` changes what it must, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "commands/cli/options_table.h"
#include "test/commands/log_events.h"
#include "test/commands/program.h"
#include "test/commands/run/option_rows.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;
using Facets = std::map<std::string, std::string>;

TEST(EveryOption, HasARow) {
  std::set<std::string> described;
  for (const OptionRow& row : option_rows()) described.insert(row.option);
  for (const std::string& option : option_names(Command::train)) {
    EXPECT_TRUE(described.contains(option))
        << "--" << option << ": say in test/commands/run/option_rows.h what it changes";
  }
}

Arguments base_arguments(Base base) {
  if (base == Base::timed) {
    return {{"device", "timed"}, {"layers", "2"},        {"heads", "2"}, {"hidden", "32"},     {"vocab", "257"},
            {"seq-len", "16"},   {"micro-batches", "4"}, {"steps", "2"}, {"cost-forward", "1"}};
  }
  return {{"train-data", "@/train.bin"},
          {"val-data", "@/train.bin"},
          {"layers", "2"},
          {"heads", "2"},
          {"hidden", "32"},
          {"seq-len", "16"},
          {"micro-batch-size", "2"},
          {"micro-batches", "4"},
          {"steps", "4"},
          {"learning-rate", "1e-2"},
          {"warmup-steps", "1"},
          {"val-every", "2"},
          {"val-batches", "1"},
          {"threads", "1"}};
}

// Later ones take the place of earlier ones.
Arguments with(Arguments arguments, const Arguments& others) {
  for (const auto& other : others) {
    const auto same = [&](const auto& it) { return it.first == other.first; };
    const auto found = std::find_if(arguments.begin(), arguments.end(), same);
    if (found == arguments.end()) {
      arguments.push_back(other);
    } else {
      *found = other;
    }
  }
  return arguments;
}

Arguments without(Arguments arguments, const std::set<std::string>& names) {
  std::erase_if(arguments, [&](const auto& it) { return names.contains(it.first); });
  return arguments;
}

std::string without_fields(Json event, const std::vector<std::string>& names) {
  for (const std::string& name : names) event.erase(name);
  return event.dump();
}

std::string values(const std::vector<Json>& all, const char* field) {
  std::string text;
  for (const Json& event : all) text += event.at(field).dump() + " ";
  return text;
}

// Which kinds of lines there are, by their first words, and how many of steps. Rows of tables are not looked at.
std::string kinds_of_lines(const std::string& output) {
  std::set<std::string> kinds;
  int steps = 0;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::string word = line.substr(0, line.find_first_of(" :"));
    if (word == "step" && line.find("tok/s") != std::string::npos) ++steps;
    static const std::set<std::string> kKinds = {"run",        "model",  "partition",  "memory",   "schedule",
                                                 "validation", "sample", "checkpoint", "makespan", "timeline",
                                                 "trace",      "report", "measuring",  "resumed",  "parameter_hash"};
    if (kKinds.contains(word)) kinds.insert(word);
  }
  std::string text = std::to_string(steps) + " steps;";
  for (const std::string& kind : kinds) text += " " + kind;
  return text;
}

std::string files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) names.insert(std::filesystem::relative(entry.path(), folder).string());
  }
  std::string text;
  for (const std::string& name : names) text += name + " ";
  return text;
}

class OptionOfTrain : public testing::TestWithParam<OptionRow> {
 protected:
  static void SetUpTestSuite() {
    folder_ = new Folder;
    const auto make = [](const std::string& arguments) {
      const ProgramRun run = run_program(0, placed(arguments));
      ASSERT_EQ(run.status, 0) << run.output;
    };
    for (const char* name : {"train", "other"}) {
      std::string text;
      for (int i = 0; i < 4000; ++i)
        text += std::string(name) + " " + std::to_string(i * i % 97) + (i % 7 == 0 ? "\n" : ", ");
      const std::string file = *folder_ / (std::string(name) + ".txt");
      write_file(file, text.data(), text.size());
      make("prepare --text " + file + " --output @/" + name + ".bin");
    }
    make("simulate --stages 2 --micro-batches 4 --schedule zb-h1 --csv @/schedule.csv");
    const std::string question = R"({"ctx": "train 3, train", "endings": [" 5", " other"], "label": 0})";
    write_file(*folder_ / "questions.jsonl", question.data(), question.size());
    make("prepare --text @/other.txt --val-fraction 0.2 --output @/data");
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  // `@` is the folder.
  static std::string placed(std::string text) {
    for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at)) {
      text.replace(at, 1, folder_->path());
    }
    return text;
  }

  static ProgramRun run_with(Base base, const Arguments& arguments) {
    std::string words = "train";
    for (const auto& [option, value] : arguments) words += " --" + option + (value.empty() ? "" : " " + value);
    return run_program(base == Base::one_rank ? 0 : 2, placed(words));
  }

  // Everything that can be seen of a run, by name.
  static Facets facets_of(Base base, Arguments arguments) {
    const auto is_output = [](const auto& it) { return it.first == "output"; };
    if (std::none_of(arguments.begin(), arguments.end(), is_output)) {
      arguments.emplace_back("output", "@/run-" + std::to_string(runs_++));
    }
    const std::string output = placed(std::find_if(arguments.begin(), arguments.end(), is_output)->second);
    for (const char* name : {"trace.json", "step.svg"}) std::filesystem::remove(*folder_ / name);
    const ProgramRun run = run_with(base, arguments);
    EXPECT_EQ(run.status, 0) << run.output;
    if (run.status != 0) return {};
    const std::string log = read_file(output + "/log.jsonl");
    const std::vector<Json> steps = events(log, "step"), validations = events(log, "validation");
    const Json plan = events(log, "plan").back();
    Facets facets;
    facets["parameters"] = events(log, "end").back().at("parameter_hash").dump();
    facets["learning rates"] = base == Base::timed ? "" : values(steps, "lr");
    facets["steps"] = std::to_string(steps.size());
    facets["validated"] = values(validations, "step");
    facets["answered"] = values(events(log, "multiple_choice"), "step");
    facets["first validation"] = validations.empty() ? "" : validations.front().at("loss").dump();
    facets["plan"] = without_fields(plan, {"bubble_predicted", "bubble_span_predicted", "step_ms_predicted",
                                           "tokens_per_s_predicted", "step_ms_predicted_uniform"});
    facets["prediction"] = base == Base::timed ? plan.at("step_ms_predicted").dump() : "";
    facets["start"] = without_fields(events(log, "start").back(), {"time", "process", "command_line", "device"});
    const std::string device = events(log, "start").back().at("device");
    facets["resources"] = device.substr(0, device.find(';'));  // what follows are speeds
    facets["files"] = files_in(output);
    facets["trace and picture"] = "";
    for (const char* name : {"trace.json", "step.svg"}) {
      if (std::filesystem::exists(*folder_ / name)) facets["trace and picture"] += name;
    }
    facets["screen"] = kinds_of_lines(run.output);
    return facets;
  }

  // Runs that several rows compare with are made once.
  static const Facets& reference(Base base, const Arguments& arguments) {
    std::string key = std::to_string(static_cast<int>(base));
    for (const auto& [option, value] : arguments) key += " " + option + "=" + value;
    const auto [found, is_new] = references_.try_emplace(key);
    if (is_new) found->second = facets_of(base, arguments);
    return found->second;
  }

  // Makes the files that rows name by it.
  static void prepare(const std::string& value) {
    const Arguments base = base_arguments(Base::one_rank);
    for (const char* name : {"first", "second"}) {
      if (!value.starts_with("@/" + std::string(name)) || std::filesystem::exists(*folder_ / name)) continue;
      const ProgramRun run =
          run_with(Base::one_rank, with(base, {{"output", "@/" + std::string(name)}, {"checkpoint-every", "2"}}));
      ASSERT_EQ(run.status, 0) << run.output;
    }
    if ((value == "@/profile.json" || value == "@/other_profile.json") && !std::filesystem::exists(placed(value))) {
      const ProgramRun run = run_program(2, placed("profile --profile " + value +
                                                   " --vocab 257 --layers 2 --heads 2 --hidden 32 --seq-len 16 "
                                                   "--micro-batch-size 2 --threads 1"));
      ASSERT_EQ(run.status, 0) << run.output;
    }
  }

  static Folder* folder_;
  static std::map<std::string, Facets> references_;
  static int runs_;
};
Folder* OptionOfTrain::folder_ = nullptr;
std::map<std::string, Facets> OptionOfTrain::references_;
int OptionOfTrain::runs_ = 0;

TEST_P(OptionOfTrain, ChangesWhatItMustAndNothingElse) {
  const OptionRow& row = GetParam();
  Arguments base = with(base_arguments(row.base), row.given);
  // Where costs are measured, cuts and the form of the head differ from run to run.
  if (row.base == Base::two_ranks) base = with(base, {{"profile", "@/profile.json"}});
  if (row.base == Base::two_ranks && row.option != "partition" && row.option != "chunks" &&
      row.option != "group-size") {
    base = with(base, {{"partition", row.ranks_are_replicas() ? "uniform" : "3,3"}});
  }
  if (row.option == "chunks" || row.option == "group-size") base = with(base, {{"partition", "uniform"}});
  for (const auto& [option, value] : base) prepare(value);
  for (const auto& [option, value] : row.arguments) prepare(value);
  const Facets& before = reference(row.base, base);
  const Facets after = facets_of(row.base, with(without(base, row.leaves_out), row.arguments));
  ASSERT_FALSE(before.empty() || after.empty());
  for (const auto& [facet, value] : before) {
    if (row.changes.contains(facet)) {
      EXPECT_NE(after.at(facet), value) << "--" << row.option << " does not change: " << facet;
    } else {
      EXPECT_EQ(after.at(facet), value) << "--" << row.option << " changes: " << facet;
    }
  }
  for (const std::string& facet : row.changes) EXPECT_TRUE(before.contains(facet)) << facet;
}

INSTANTIATE_TEST_SUITE_P(Rows, OptionOfTrain, testing::ValuesIn(option_rows()), [](const auto& row) {
  std::string name = row.param.option;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace train_gpt::test
