// plan, profile and the timed device, as users run them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "commands/run/action_time.h"
#include "pipeline/schedule/catalog.h"
#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;

Json last_line(const std::string& output) {
  std::istringstream lines(output);
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  return Json::parse(last);
}

// All that --json prints.
Json plan_of(const std::string& arguments) {
  const ProgramRun run = run_program(0, "plan --json" + arguments);
  EXPECT_EQ(run.status, 0) << run.output;
  return Json::parse(run.output);
}

const std::string kSmall = " --layers 4 --heads 2 --hidden 32 --vocab 300 --seq-len 16 --micro-batch-size 1";

TEST(PlanCommand, PredictsWhatTheTheorySaysForGivenCosts) {
  const Json plan = plan_of(" --stages 4 --cost-forward 20 --cost-input 20ms --cost-weight 0.02s" + kSmall);
  EXPECT_EQ(plan.at("event"), "plan");
  EXPECT_NEAR(plan.at("bubble_predicted").get<double>(), 3.0 / 11, 1e-12);
  EXPECT_NEAR(plan.at("step_ms_predicted").get<double>(), 660, 1e-9);
  EXPECT_EQ(plan.at("ranks").size(), 4U);
}

TEST(PlanCommand, ShowsHowManyActivationsAScheduleKeeps) {
  for (const auto& [schedule, slots] :
       std::vector<std::pair<std::string, int>>{{"gpipe", 8}, {"1f1b", 4}, {"zb-h1", 4}, {"zb-h2", 7}}) {
    const std::string arguments = " --stages 4 --micro-batches 8 --schedule " + schedule + kSmall;
    const ProgramRun run = run_program(0, "plan" + arguments);
    ASSERT_EQ(run.status, 0) << run.output;
    EXPECT_EQ(plan_of(arguments).at("ranks").at(0).at("live_micro_batches"), slots) << schedule;
    const std::string row = "live micro-batches";
    std::istringstream cells(run.output.substr(run.output.find(row) + row.size()));
    int shown = 0;
    cells >> shown;
    EXPECT_EQ(shown, slots) << run.output;
  }
}

TEST(PlanCommand, SaysWhatShardsGainAndWhatTheyDoNot) {
  const std::string sharded =
      "plan --data-parallel 4 --zero 3 --stages 2 --micro-batches 4 --layers 11 --heads 2 --hidden 256 --vocab 300 "
      "--seq-len 16 --micro-batch-size 1";
  const ProgramRun nothing = run_program(0, sharded);
  EXPECT_NE(nothing.output.find("--zero: on every rank parameters stay whole"), std::string::npos) << nothing.output;
  EXPECT_NE(nothing.output.find("--zero: on every rank gradients stay whole"), std::string::npos) << nothing.output;
  const ProgramRun windows = run_program(0, sharded + " --schedule breadth-first --chunks 8");
  EXPECT_EQ(windows.output.find("stay whole"), std::string::npos) << windows.output;
  EXPECT_NE(windows.output.find("--zero: on every rank parameters are gathered for each run"), std::string::npos)
      << windows.output;
  for (const char* row : {"parameters, gathered", "gradients, own part"}) {
    EXPECT_NE(windows.output.find(row), std::string::npos) << windows.output;
  }
}

TEST(PlanCommand, ShowsWhatACutByCostGains) {
  const ProgramRun run = run_program(0, "plan --stages 4 --model d12");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_NE(run.output.find("a uniform cut:"), std::string::npos) << run.output;
  EXPECT_EQ(run.output.find("tokens/s"), std::string::npos) << "nothing was measured: " << run.output;
  EXPECT_EQ(run.output.find('{'), std::string::npos) << "JSON only with --json";
  const Json plan = plan_of(" --stages 4 --model d12");
  EXPECT_LT(plan.at("step_ms_predicted").get<double>(), plan.at("step_ms_predicted_uniform").get<double>());
}

TEST(PlanCommand, AutoSaysWhatItChoseAndComparesSplits) {
  const ProgramRun run = run_program(0, "plan --stages 2 --schedule auto --micro-batches 4" + kSmall);
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_NE(run.output.find("auto: "), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("b    2  m    2"), std::string::npos) << run.output;
}

// The line of the memory table that begins so.
std::string row(const std::string& output, const std::string& name) {
  const std::size_t at = output.find("\n" + name);
  return at == std::string::npos ? "" : output.substr(at + 1, output.find('\n', at + 1) - at - 1);
}

TEST(PlanCommand, ShowsTheCopiesFromWhichTrainWritesCheckpoints) {
  const Folder folder;
  const std::vector<char> tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
  write_file(folder / "train.bin", tokens.data(), tokens.size());
  const std::string sizes =
      " --layers 2 --heads 1 --hidden 16 --vocab 1009 --max-seq-len 16 --seq-len 16 --micro-batch-size 1 "
      "--micro-batches 2 --partition uniform --data-parallel 2";
  const std::string in_folder = "-C " + folder.path();
  const ProgramRun planned = run_program(0, "plan --stages 2" + sizes, {.environment = in_folder});
  const ProgramRun trained =
      run_program(4, "--train-data train.bin --threads 1 --steps 1 --output out" + sizes, {.environment = in_folder});
  ASSERT_EQ(trained.status, 0) << trained.output;
  const std::string copy = row(planned.output, "checkpoint copy, on host");
  EXPECT_NE(copy, "") << planned.output;
  EXPECT_EQ(copy, row(trained.output, "checkpoint copy, on host")) << trained.output;
  EXPECT_EQ(count(planned.output, "Such copies has the first of the 2 replicas"), 1) << planned.output;

  const Json ranks = plan_of(" --stages 2" + sizes).at("ranks");
  std::int64_t most = 0;
  for (const Json& rank : ranks) {
    const Json& memory = rank.at("memory");
    const std::int64_t state = 3 * memory.at("parameters").get<std::int64_t>();
    EXPECT_EQ(rank.at("copy_bytes"), state);
    most = std::max(most, rank.at("bytes").get<std::int64_t>() + state);
  }
  const auto limited = [&](std::int64_t bytes) {
    return run_program(0, "plan --stages 2 --memory-limit " + std::to_string(bytes) + sizes).output;
  };
  EXPECT_EQ(row(limited(most), "checkpoint copy, on host"), copy);
  EXPECT_EQ(row(limited(most - 1), "checkpoint copy, on host"), "");
  EXPECT_EQ(count(limited(most - 1), "note: training waits while checkpoints are written"), 1);
}

TEST(PlanCommand, RefusesWhatDoesNotFitWithASuggestion) {
  const ProgramRun run = run_program(0, "plan --stages 2 --memory-limit 100KB" + kSmall);
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.output.find("--memory-limit"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("Nothing was found that fits"), std::string::npos) << run.output;
  EXPECT_EQ(run_program(0, "plan" + kSmall).status, 2);  // no --stages
}

TEST(PlanCommand, RecomputesUnderAMemoryLimit) {
  const std::string sizes = " --stages 2 --layers 8 --heads 2 --hidden 64 --vocab 300 --seq-len 128 --schedule gpipe";
  const Json unlimited = plan_of(sizes);
  std::int64_t most = 0;
  for (const Json& rank : unlimited.at("ranks")) most = std::max(most, rank.at("bytes").get<std::int64_t>());
  const std::string limit = " --memory-limit " + std::to_string(most * 7 / 10);
  const ProgramRun refused = run_program(0, "plan" + sizes + limit);
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.output.find("This fits: --recompute auto ("), std::string::npos) << refused.output;
  EXPECT_GT(plan_of(sizes + limit + " --recompute auto").at("recomputed_units").size(), 0U);
}

TEST(ProfileCommand, WritesWhatPlanAndTrainRead) {
  const Folder folder;
  const std::string profile = " --profile " + (folder / "profile.json");
  const ProgramRun measured = run_program(2, "profile --threads 1" + kSmall + profile);
  ASSERT_EQ(measured.status, 0) << measured.output;
  EXPECT_EQ(plan_of(kSmall + profile).at("stages"), 2);
  const ProgramRun shown = run_program(0, "plan" + kSmall + profile);
  EXPECT_NE(shown.output.find("tokens/s"), std::string::npos) << shown.output;
  const ProgramRun other = run_program(0, "plan --hidden 64 --layers 4 --heads 2 --vocab 300 --seq-len 16" + profile);
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.output.find("--hidden 32"), std::string::npos) << other.output;

  const auto tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
  write_file(folder / "train.bin", tokens.data(), tokens.size());
  const std::string train = " --train-data " + (folder / "train.bin") + " --steps 2 --threads 1 --micro-batches 2" +
                            " --layers 4 --heads 2 --hidden 32 --vocab 50257 --seq-len 16 --micro-batch-size 1";
  std::string hash;
  for (const std::string choice :
       {" --partition uniform", " --partition 2,32", " --schedule auto", " --recompute 1,1 --partition uniform"}) {
    const ProgramRun run = run_program(2, "train --overwrite --output " + (folder / "out") + train + choice);
    ASSERT_EQ(run.status, 0) << run.output;
    const Json end = last_line(read_file(folder / "out/log.jsonl"));
    if (hash.empty()) hash = end.at("parameter_hash");
    EXPECT_EQ(end.at("parameter_hash"), hash) << choice;
  }
}

// The reduction of rank 0, whose last W of 2 ms ends the step, is exposed from the first part of that W on; that of
// rank 1 may be hidden.
TEST(TimedDevice, ReducesOverReplicasBesideTheActions) {
  const Folder folder;
  const ProgramRun run =
      run_program(4, "train --device timed --data-parallel 2 --micro-batches 2 --cost-forward 2 --cost-input 2 " +
                         ("--cost-weight 2 --steps 2 --cost-reduction 40 --trace " + (folder / "trace.json")) +
                         " --output " + (folder / "out") + kSmall);
  ASSERT_EQ(run.status, 0) << run.output;
  std::istringstream lines(read_file(folder / "out/log.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event.at("event") == "step") {
      EXPECT_GE(event.at("ms").get<double>(), 18 - 2 + 40);
    }
  }
  int reductions = 0;
  const Json trace = Json::parse(read_file(folder / "trace.json"));
  for (const Json& event : trace.at("traceEvents")) {
    reductions += event.at("name") == "R" ? 1 : 0;
  }
  EXPECT_GE(reductions, 2);  // one for each rank of a pipeline
}

// Every message takes 20 ms, of a hop, of a reduction or of a gather: rank 0 gathers two sections before its first
// forward, waits for a hop there and back, and reduces both sections after its last backward.
TEST(TimedDevice, GathersAndReducesOnTheLinksOfACluster) {
  const Folder folder;
  for (const std::string zero : {"1", "3"}) {
    const ProgramRun run = run_program(
        4, "train --overwrite --device timed --data-parallel 2 --micro-batches 2 --cost-forward 2 --cost-input 2 " +
               ("--cost-weight 2 --steps 2 --latency-inside 20 --zero " + zero) + " --trace " +
               (folder / "trace.json") + " --output " + (folder / "out") + kSmall);
    ASSERT_EQ(run.status, 0) << run.output;
    std::istringstream lines(read_file(folder / "out/log.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event.at("event") == "step") {
        EXPECT_GE(event.at("ms").get<double>(), 18 + 40 + 40 + 40) << zero;
      }
    }
    int gathers = 0;
    const Json trace = Json::parse(read_file(folder / "trace.json"));
    for (const Json& event : trace.at("traceEvents")) gathers += event.at("name") == "G" ? 1 : 0;
    EXPECT_GE(gathers, 4) << zero;  // two sections on each of two ranks
  }
}

TEST(TimedDevice, RunsTheScheduleAndComputesNothing) {
  const Folder folder;
  const ProgramRun run =
      run_program(4, "train --device timed --cost-forward 2 --cost-input 2 --cost-weight 2 --steps 2 " +
                         ("--cost-comm 0.5 --output " + (folder / "out")) + kSmall);
  ASSERT_EQ(run.status, 0) << run.output;
  std::istringstream lines(read_file(folder / "out/log.jsonl"));
  int steps = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event.at("event") != "step") continue;
    ++steps;
    EXPECT_TRUE(event.at("loss").is_null());
    EXPECT_GE(event.at("ms").get<double>(), 66);  // no action is shorter than its cost
    EXPECT_GT(event.at("bubble").get<double>(), 0);
  }
  EXPECT_EQ(steps, 2);
}

TEST(TimedDevice, RefusesWhatItCannotDo) {
  const std::string timed = "train --device timed" + kSmall;
  EXPECT_EQ(run_program(2, timed + " --sample-every 1").status, 2);
  EXPECT_EQ(run_program(2, timed + " --stages 4").status, 2);
}

TEST(ActionDurations, AreThoseOfTheSimulator) {
  const Schedule schedule = make_schedule({.name = "dualpipev", .ranks = 2, .micro_batches = 4});
  Costs costs{.forward = {2}, .input = {2}, .weight = {4}};
  const StageCosts apart = stage_costs(costs, schedule.placement);
  costs.fused = {5};
  const StageCosts fused = stage_costs(costs, schedule.placement);
  for (int r = 0; r < 2; ++r) {
    double sum = 0;
    for (const double ms : action_durations(schedule, apart, r)) sum += ms;
    EXPECT_NEAR(sum, 4 * 8.0, 1e-9);
    double with_pairs = 0;
    for (const double ms : action_durations(schedule, fused, r)) with_pairs += ms;
    EXPECT_NEAR(with_pairs, simulate(schedule, fused).busy[static_cast<std::size_t>(r)], 1e-9);
    EXPECT_LT(with_pairs, sum);
  }
}

}  // namespace
}  // namespace train_gpt::test
