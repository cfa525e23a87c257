// `train_gpt plan --ranks N`, as people call it, and links of a cluster in `simulate`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "test/commands/program.h"

namespace train_gpt {
namespace {

using Json = nlohmann::json;
using test::ProgramRun;
using test::run_program;

const std::string kModel =
    " --layers 4 --heads 4 --hidden 64 --vocab 300 --max-seq-len 64 --seq-len 64 --train-data none";
const std::string kSpeed = " --flops-per-second 1e12 --link-inside 50";

Json layouts_of(const std::string& words) {
  const ProgramRun run = run_program(0, "plan" + kModel + " --json " + words);
  EXPECT_EQ(run.status, 0) << run.output;
  return Json::parse(run.output);
}

void expect_refused(const std::string& words, const std::string& names, const std::string& says) {
  const ProgramRun run = run_program(0, "plan" + kModel + " " + words);
  EXPECT_EQ(run.status, 2) << words;
  EXPECT_NE(run.output.find(names), std::string::npos) << run.output;
  EXPECT_NE(run.output.find(says), std::string::npos) << run.output;
}

TEST(PlanRanks, ComparesLayoutsOfTheSameStep) {
  const Json found = layouts_of("--ranks 4 --global-batch-size 32" + kSpeed);
  ASSERT_GE(found["layouts"].size(), 5u);
  double last = 0;
  for (const Json& it : found["layouts"]) {
    EXPECT_EQ(it["data_parallel"].get<int>() * it["stages"].get<int>(), 4);
    EXPECT_EQ(it["data_parallel"].get<int>() * it["micro_batches"].get<int>() * it["micro_batch_size"].get<int>(), 32);
    EXPECT_GE(it["step_ms_predicted"].get<double>(), last);
    last = it["step_ms_predicted"];
    EXPECT_NEAR(it["tokens_per_s_predicted"].get<double>(), 32 * 64 / last * 1000, 1e-6 * 32 * 64 / last * 1000);
  }
}

TEST(PlanRanks, HoldsWhatIsGiven) {
  for (const Json& it : layouts_of("--ranks 4 --stages 2 --schedule zb-v --micro-batch-size 2" + kSpeed)["layouts"]) {
    EXPECT_EQ(it["stages"], 2);
    EXPECT_EQ(it["schedule"], "zb-v");
    EXPECT_EQ(it["micro_batch_size"], 2);
  }
  for (const Json& it : layouts_of("--ranks 4 --data-parallel 4 --zero 3" + kSpeed)["layouts"]) {
    EXPECT_EQ(it["zero"], 3);
    EXPECT_EQ(it["stages"], 1);
  }
}

// What the search says of a layout is what a plan of that layout says, to the byte.
TEST(PlanRanks, TheMemoryIsThatOfThePlan) {
  const Json best =
      layouts_of("--ranks 4 --stages 2 --schedule 1f1b --zero 1 --micro-batch-size 2" + kSpeed)["layouts"][0];
  std::string cut;
  for (const int units : best["partition"]) cut += (cut.empty() ? "" : ",") + std::to_string(units);
  const Json plan =
      layouts_of("--stages 2 --data-parallel 2 --zero 1 --schedule 1f1b --micro-batch-size 2 --micro-batches " +
                 std::to_string(best["micro_batches"].get<int>()) + " --partition " + cut + " --device timed");
  std::int64_t most = 0;
  for (const Json& rank : plan["ranks"]) most = std::max(most, rank["bytes"].get<std::int64_t>());
  EXPECT_EQ(best["bytes"].get<std::int64_t>(), most);
}

TEST(PlanRanks, SaysWhatItRestsOnAndWhatToRun) {
  const ProgramRun run = run_program(0, "plan" + kModel + " --ranks 4 --ranks-per-host 2 --link-between 1" + kSpeed);
  EXPECT_EQ(run.status, 0) << run.output;
  for (const char* words : {"between hosts", "FSDP", "no time for the update", "mpirun -n 4 ./train_gpt train",
                            "8 per rank", "50 GB/s inside a host"}) {
    EXPECT_NE(run.output.find(words), std::string::npos) << words << "\n" << run.output;
  }
}

TEST(PlanRanks, RefusesWhatItCannotKnow) {
  expect_refused("--ranks 4 --link-inside 50", "--ranks 4", "--flops-per-second");
  expect_refused("--ranks 4 --flops-per-second 1e12", "--ranks 4", "--link-inside");
  expect_refused("--ranks 4 --ranks-per-host 2" + kSpeed, "--ranks-per-host 2", "--link-between");
  expect_refused("--ranks 4 --partition 5,5" + kSpeed, "--partition", "--ranks 4");
  expect_refused("--ranks 4 --micro-batches 5" + kSpeed, "--micro-batches", "--global-batch-size");
  expect_refused("--ranks 4 --stages 3" + kSpeed, "--ranks 4", "no layout is legal");
  expect_refused("--stages 2 --link-inside 3", "--link-inside", "--ranks N");
}

TEST(PlanRanks, NamesWhatWouldFit) {
  const ProgramRun run = run_program(0, "plan" + kModel + " --ranks 2 --memory-limit 1MB" + kSpeed);
  EXPECT_EQ(run.status, 2);
  const std::string give = "give --memory-limit ";
  const std::size_t at = run.output.find(give);
  ASSERT_NE(at, std::string::npos) << run.output;
  const std::string bytes = std::to_string(std::stoll(run.output.substr(at + give.size())));
  EXPECT_EQ(run_program(0, "plan" + kModel + " --ranks 2 --memory-limit " + bytes + kSpeed).status, 0);
}

// Ranks of different memory: the cut gives the smaller one less, and a list that fits nowhere is refused by rank.
TEST(MemoryLimits, AreThoseOfEachRank) {
  const std::string plan = "--stages 2 --schedule 1f1b --micro-batches 4 --micro-batch-size 4 --memory-limit ";
  const auto bytes_of = [](const Json& found) {
    return std::vector<std::int64_t>{found["ranks"][0]["bytes"], found["ranks"][1]["bytes"]};
  };
  const std::vector<std::int64_t> free = bytes_of(layouts_of(plan + "1GB"));
  for (const std::size_t small : {std::size_t{0}, std::size_t{1}}) {
    std::vector<std::int64_t> limits(2, 1'000'000'000);
    limits[small] = free[small] * 8 / 10;
    const std::vector<std::int64_t> found =
        bytes_of(layouts_of(plan + std::to_string(limits[0]) + "," + std::to_string(limits[1])));
    EXPECT_LE(found[small], limits[small]);
    EXPECT_GT(found[1 - small], free[1 - small] * 8 / 10);
  }
  expect_refused(plan + "1GB,1000", "--memory-limit 1000", "rank 1");
  expect_refused(plan + "1GB,1GB,1GB", "--memory-limit", "3 values");
}

// 1F1B of two ranks with two replicas on two hosts: messages of 1 x 64 x 64 floats, and gradients between hosts.
TEST(SimulateLinks, TakeTheTimeOfBytes) {
  const std::string words =
      "simulate --json --stages 2 --micro-batches 1 --micro-batch-size 1 --schedule 1f1b --seq-len 64 "
      "--layers 4 --heads 4 --hidden 64 --vocab 300 --ranks-per-host 2 --link-inside 1MB/s ";
  const auto first_of = [&](const std::string& more) { return Json::parse(run_program(0, words + more).output)[0]; };
  const double message_ms = 64 * 64 * 4 / 1e3;
  EXPECT_NEAR(first_of("")["makespan"].get<double>(), 6 + 2 * message_ms, 1e-9);
  const Json shared = first_of("--data-parallel 2 --link-between 100MB/s --latency-between 3");
  EXPECT_NEAR(shared["makespan"].get<double>(), 6 + 2 * message_ms, 1e-9);
  EXPECT_GT(shared["replicas_exposed"].get<double>(), 2 * 3);  // a message each for reduce-scatter and all-gather
  const Json zero = first_of("--data-parallel 2 --link-between 100MB/s --latency-between 3 --zero 1");
  EXPECT_NEAR(zero["replicas_exposed"].get<double>(), shared["replicas_exposed"].get<double>(),
              0.3 * shared["replicas_exposed"].get<double>());
  // Replicas on one host: its links are slower here.
  const Json neighbours =
      first_of("--data-parallel 2 --link-between 100MB/s --latency-between 3 --rank-order replicas");
  EXPECT_NEAR(neighbours["makespan"].get<double>(), 6 + 2 * (message_ms / 100 + 3), 1e-9);
  EXPECT_GT(neighbours["replicas_exposed"].get<double>(), 10 * shared["replicas_exposed"].get<double>());
}

TEST(SimulateLinks, RefuseWhatContradictsThem) {
  const std::string words = "simulate --stages 2 --micro-batches 4 --schedule 1f1b ";
  for (const char* wrong :
       {"--link-inside 5 --cost-comm 1", "--link-inside 5 --cost-bandwidth 1", "--link-between 5", "--data-parallel 2",
        "--data-parallel 2 --zero 1 --cost-reduction 1", "--data-parallel 2 --link-inside 5 --cost-reduction 1"}) {
    const ProgramRun run = run_program(0, words + wrong);
    EXPECT_EQ(run.status, 2) << wrong << "\n" << run.output;
  }
}

}  // namespace
}  // namespace train_gpt
