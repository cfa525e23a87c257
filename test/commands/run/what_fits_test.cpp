// A refusal for lack of memory names options that would fit, and they do.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "test/commands/program.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;
using Arguments = std::map<std::string, std::string>;

const Arguments kRun = {{"stages", "2"},       {"schedule", "1f1b"}, {"partition", "uniform"},
                        {"layers", "8"},       {"heads", "2"},       {"hidden", "64"},
                        {"vocab", "300"},      {"seq-len", "64"},    {"micro-batch-size", "8"},
                        {"micro-batches", "8"}};

ProgramRun plan(const Arguments& arguments, bool json) {
  std::string words = json ? "plan --json" : "plan";
  for (const auto& [name, value] : arguments) words += " --" + name + " " + value;
  return run_program(0, words);
}

std::int64_t largest_rank(const Arguments& arguments) {
  const ProgramRun run = plan(arguments, true);
  EXPECT_EQ(run.status, 0) << run.output;
  std::int64_t most = 0;
  if (run.status != 0) return most;
  const Json found = Json::parse(run.output);
  for (const Json& rank : found.at("ranks")) {
    most = std::max(most, rank.at("bytes").get<std::int64_t>());
  }
  return most;
}

// "--recompute auto", "--micro-batch-size 4 --micro-batches 16", "4 ranks per pipeline, --schedule auto" ..
Arguments with(Arguments arguments, const std::string& suggested) {
  std::istringstream words(suggested);
  for (std::string word, value; words >> word;) {
    if (word.starts_with("--")) {
      words >> value;
      arguments[word.substr(2)] = value;
    } else if (word == "ranks") {
      arguments["stages"] = value;
    } else {
      value = word;
    }
  }
  return arguments;
}

// What is suggested for a limit of this share of what the run takes.
std::string suggested_for(double share) {
  Arguments limited = kRun;
  limited["memory-limit"] = std::to_string(static_cast<std::int64_t>(share * static_cast<double>(largest_rank(kRun))));
  const ProgramRun run = plan(limited, false);
  EXPECT_EQ(run.status, 2) << run.output;
  const std::string begin = "This fits: ";
  const std::size_t at = run.output.find(begin);
  EXPECT_NE(at, std::string::npos) << run.output;
  if (at == std::string::npos) return "";
  const std::string text = run.output.substr(at + begin.size());
  const std::string options = text.substr(0, text.find(" ("));
  const Arguments followed = with(limited, options);
  EXPECT_LE(largest_rank(followed), std::stoll(limited["memory-limit"])) << text;
  return options;
}

TEST(WhatFits, IsAPlanThatFits) {
  EXPECT_EQ(suggested_for(0.9), "--recompute auto");
  EXPECT_EQ(suggested_for(0.5), "--micro-batch-size 4 --micro-batches 16 --recompute auto");
  EXPECT_EQ(suggested_for(0.25), "--micro-batch-size 1 --micro-batches 64 --schedule auto --recompute auto");
}

// Ten units: eight ranks can have one each, sixteen cannot.
TEST(WhatFits, SaysWhatWasTried) {
  const ProgramRun run =
      run_program(0,
                  "plan --stages 2 --memory-limit 100KB --layers 4 --heads 2 --hidden 32 --vocab 300 --seq-len 16 "
                  "--micro-batch-size 1");
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.output.find("Nothing was found that fits: neither recomputation, another schedule nor smaller "
                            "micro-batches, nor up to 8 ranks per pipeline"),
            std::string::npos)
      << run.output;
}

}  // namespace
}  // namespace train_gpt::test
