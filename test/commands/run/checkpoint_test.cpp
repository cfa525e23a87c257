// Checkpoints as users meet them: written, kept, damaged, resumed under mpirun.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "pipeline/train/state_file.h"
#include "test/commands/log_events.h"
#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// The numbers that must be equal bit by bit.
std::vector<std::string> results(const std::string& log_path) {
  std::vector<std::string> lines;
  for (const Json& step : events(read_file(log_path), "step")) {
    lines.push_back(step.at("step").dump() + " " + step.at("loss").dump() + " " + step.at("grad_norm").dump() + " " +
                    step.at("lr").dump());
  }
  lines.push_back(events(read_file(log_path), "end").back().at("parameter_hash"));
  return lines;
}

void flip_byte(const std::string& path, std::size_t at) {
  std::string bytes = read_file(path);
  bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
  write_file(path, bytes.data(), bytes.size());
}

class Checkpoints : public testing::Test {
 protected:
  Checkpoints() {
    const std::vector<char> tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
    write_file(folder_ / "train.bin", tokens.data(), tokens.size());
  }

  std::string arguments(const std::string& output, const std::string& more = "") const {
    return "--train-data " + (folder_ / "train.bin") +
           " --layers 2 --heads 2 --hidden 32 --vocab 1009 --max-seq-len 32 --seq-len 32 --micro-batch-size 1 "
           "--micro-batches 4 --steps 8 --learning-rate 1e-3 --threads 1 --output " +
           (folder_ / output) + " " + more;
  }
  // Costs of two ranks: where they are measured at every start, plans differ from run to run.
  std::string profile() const {
    const std::string file = folder_ / "profile.json";
    if (!fs::exists(file)) {
      must_run(2, "profile --profile " + file + " --layers 2 --heads 2 --hidden 32 --vocab 1009 --max-seq-len 32 " +
                      "--seq-len 32 --micro-batch-size 1 --threads 1");
    }
    return "--profile " + file + " ";
  }
  std::string checkpoint(const std::string& output, int step) const {
    return folder_ / (output + "/checkpoints/step-" + std::to_string(step));
  }
  std::string log(const std::string& output) const { return folder_ / (output + "/log.jsonl"); }

  std::set<std::string> checkpoints_in(const std::string& output) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / (output + "/checkpoints"))) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  void must_run(int ranks, const std::string& command) const {
    const ProgramRun run = run_program(ranks, command);
    ASSERT_EQ(run.status, 0) << command << "\n" << run.output;
  }

  Folder folder_;
};

TEST_F(Checkpoints, ResumeOnOtherRanksAndScheduleIsTheUnbrokenRun) {
  must_run(2, arguments("whole", "--checkpoint-every 3 --keep 2"));
  EXPECT_EQ(checkpoints_in("whole"), (std::set<std::string>{"step-6", "step-8"}));
  const std::vector<std::string> whole = results(log("whole"));
  ASSERT_EQ(whole.size(), 9U);

  const ProgramRun run = run_program(4, arguments("part", "--schedule zb-h1 --resume " + checkpoint("whole", 6)));
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(count(run.output, "resumed at step 6"), 1) << run.output;
  EXPECT_EQ(results(log("part")), (std::vector<std::string>{whole.begin() + 6, whole.end()}));

  // The last checkpoint is that of the end, and its model is the model that the run leaves.
  EXPECT_EQ(read_file(checkpoint("whole", 8) + "/model.bin"), read_file(folder_ / "whole/model.bin"));
}

// Four steps by four replicas that share everything out, then by pipelines of other schedules with other shares.
TEST_F(Checkpoints, ResumeOnOtherReplicasAndSharesIsTheUnbrokenRun) {
  const auto shape = [&](const std::string& output, int replicas, const std::string& more) {
    std::string text = arguments(output, "--accumulation-groups 4 --partition uniform --checkpoint-every 2 --keep 9 ");
    const std::string all = "--micro-batches 4";
    text.replace(text.find(all), all.size(), "--micro-batches " + std::to_string(4 / replicas));
    return text + "--data-parallel " + std::to_string(replicas) + " " + more;
  };
  must_run(1, shape("whole", 1, ""));
  const std::vector<std::string> whole = results(log("whole"));
  ASSERT_EQ(whole.size(), 9U);
  must_run(4, shape("zero3", 4, "--schedule breadth-first --chunks 6 --zero 3"));
  EXPECT_EQ(results(log("zero3")), whole);
  const auto resumed = [&](int ranks, const std::string& from, int step, const std::string& command,
                           const std::string& output) {
    must_run(ranks, command + " --resume " + checkpoint(from, step));
    EXPECT_EQ(results(log(output)), (std::vector<std::string>{whole.begin() + step, whole.end()})) << output;
  };
  resumed(4, "zero3", 2, shape("zero1", 2, "--schedule zb-v --zero 1"), "zero1");
  resumed(2, "zero1", 4, shape("zero2", 2, "--schedule breadth-first --chunks 6 --zero 2"), "zero2");
  resumed(3, "zero2", 6, shape("pipeline", 1, "--schedule 1f1b"), "pipeline");
  resumed(4, "pipeline", 8, shape("end", 2, "--schedule breadth-first --chunks 3 --zero 3"), "end");
}

// Training goes on while they are written from a copy, or waits where there is no room for one.
TEST_F(Checkpoints, WrittenBesideTrainingTheyAreThoseOfARunThatWaits) {
  const std::string constant = profile() + "--lr-schedule constant --checkpoint-every 2 --keep 9 ";
  must_run(2, arguments("beside", constant + "--partition uniform"));
  must_run(2, arguments("ahead", constant + "--partition uniform --optimizer-step optimistic"));
  const Json plan = events(read_file(log("beside")), "plan").at(0);
  std::int64_t most = 0;
  for (const Json& rank : plan.at("ranks")) {
    const Json& memory = rank.at("memory");
    const std::int64_t state = memory.at("parameters").get<std::int64_t>() +
                               memory.at("first moment").get<std::int64_t>() +
                               memory.at("second moment").get<std::int64_t>();
    EXPECT_EQ(rank.at("copy_bytes"), state);
    most = std::max(most, rank.at("bytes").get<std::int64_t>() + state);
  }
  const std::string limited = constant + "--partition uniform --memory-limit ";
  const ProgramRun fits = run_program(2, arguments("fits", limited + std::to_string(most)));
  EXPECT_EQ(count(fits.output, "note: training waits while checkpoints are written"), 0) << fits.output;
  const ProgramRun waits = run_program(2, arguments("waits", limited + std::to_string(most - 1)));
  EXPECT_EQ(waits.status, 0) << waits.output;
  EXPECT_EQ(count(waits.output, "note: training waits while checkpoints are written"), 1) << waits.output;
  EXPECT_EQ(events(read_file(log("waits")), "plan").at(0).at("ranks").at(0).at("copy_bytes"), 0);
  for (const int step : {2, 4, 6, 8}) {
    for (const char* file : {"/model.bin", "/optimizer.bin"}) {
      const std::string expected = read_file(checkpoint("waits", step) + file);
      ASSERT_FALSE(expected.empty());
      EXPECT_EQ(read_file(checkpoint("beside", step) + file), expected) << step << file;
      EXPECT_EQ(read_file(checkpoint("ahead", step) + file), expected) << step << file;
    }
  }
}

// Every replica copies the moments of its part, and waits with the copy for the parameters of the others.
TEST_F(Checkpoints, OfShardsWrittenBesideTrainingAreThoseOfARunThatWaits) {
  const std::string replicas =
      profile() + "--lr-schedule constant --checkpoint-every 2 --keep 9 --data-parallel 2 --partition uniform ";
  must_run(4, arguments("beside", replicas + "--zero 1"));
  must_run(4, arguments("ahead", replicas + "--zero 1 --optimizer-step optimistic"));
  std::int64_t most = 0;
  const Json plan = events(read_file(log("beside")), "plan").at(0);
  for (const Json& rank : plan.at("ranks")) {
    ASSERT_GT(rank.at("copy_bytes"), 0);
    most = std::max(most, rank.at("bytes").get<std::int64_t>() + rank.at("copy_bytes").get<std::int64_t>());
  }
  const ProgramRun waits =
      run_program(4, arguments("waits", replicas + "--zero 1 --memory-limit " + std::to_string(most - 1)));
  EXPECT_EQ(count(waits.output, "note: training waits while checkpoints are written"), 1) << waits.output;
  must_run(4, arguments("whole", replicas));
  const std::string units = replicas + "--schedule breadth-first --chunks 3 ";
  must_run(4, arguments("windows", units + "--zero 3"));
  must_run(4, arguments("gradients", units + "--zero 2 --rank-order replicas"));
  for (const int step : {2, 4, 6, 8}) {
    for (const char* file : {"/model.bin", "/optimizer.bin"}) {
      const std::string expected = read_file(checkpoint("waits", step) + file);
      ASSERT_FALSE(expected.empty());
      for (const char* run : {"beside", "ahead", "whole", "windows", "gradients"}) {
        EXPECT_EQ(read_file(checkpoint(run, step) + file), expected) << run << " " << step << file;
      }
    }
  }
}

TEST_F(Checkpoints, LatestPassesOverWhatIsBrokenAndSaysWhy) {
  must_run(2, arguments("out", "--checkpoint-every 2 --keep 4"));
  const std::vector<std::string> whole = results(log("out"));
  flip_byte(checkpoint("out", 8) + "/model.bin", 5000);
  fs::resize_file(checkpoint("out", 6) + "/optimizer.bin", 4000);
  fs::create_directories(checkpoint("out", 99) + ".partial");
  fs::copy(checkpoint("out", 4), checkpoint("out", 7), fs::copy_options::recursive);
  fs::remove(checkpoint("out", 7) + "/manifest.json");
  write_file(log("out") + ".before", read_file(log("out")).data(), read_file(log("out")).size());

  const ProgramRun run = run_program(3, arguments("out", "--schedule 1f1b --resume latest"));
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(count(run.output, "resumed at step 4"), 1) << run.output;
  for (const char* part : {"step-8: model.bin has the checksum", "step-6: optimizer.bin is missing or has not",
                           "step-7: it has no manifest.json", "step-99.partial: it has no manifest.json"}) {
    EXPECT_EQ(count(run.output, part), 1) << part << "\n" << run.output;
  }
  // The log goes on at step 4: what was before it stays, steps 4 to 7 are those of now, and no step is there twice.
  const std::string before = read_file(log("out") + ".before");
  const std::string kept = before.substr(0, before.find("{\"event\":\"step\",\"step\":4,"));
  EXPECT_EQ(read_file(log("out")).rfind(kept, 0), 0U);
  EXPECT_EQ(events(read_file(log("out")), "resume").at(0).at("step"), 4);
  EXPECT_EQ(results(log("out")), whole);
  EXPECT_FALSE(checkpoints_in("out").contains("step-99.partial")) << "left over, and a newer one is complete";
}

TEST_F(Checkpoints, ContradictionsAreRefusedAndNothingIsTouched) {
  must_run(1, arguments("out", "--checkpoint-every 4"));
  const std::string before = read_file(log("out"));
  const std::string path = checkpoint("out", 4);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = arguments("out", "--resume " + path);
    changed.replace(changed.find(from), from.size(), to);
    return changed;
  };
  struct Case {
    std::string arguments;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {replaced("--hidden 32", "--hidden 64"), {"--hidden is 64", "has 32"}},
      {replaced("--threads 1", "--threads 1 --tied false"), {"--tied is false", "has true"}},
      {replaced(" --seq-len 32", " --seq-len 16"), {"--seq-len is 16", "has 32"}},
      {replaced("--micro-batches 4", "--micro-batches 8"), {"rows per step is 8", "has 4"}},
      {replaced("--threads 1", "--threads 1 --seed 2"), {"--seed is 2", "has 1"}},
      {replaced("--threads 1", "--threads 1 --shuffle false"), {"--shuffle is false", "has true"}},
      {replaced("--steps 8", "--steps 3"), {"after 4 steps", "--steps 3"}},
      {arguments("empty", "--resume " + (folder_ / "nowhere")),
       {"nowhere", "is not a complete checkpoint", "manifest.json"}},
      {arguments("empty", "--resume latest"), {"empty/checkpoints has no complete checkpoint"}},
  };
  for (const Case& bad : cases) {
    const ProgramRun run = run_program(2, bad.arguments);
    EXPECT_EQ(run.status, 2) << bad.arguments << "\n" << run.output;
    EXPECT_EQ(count(run.output, "train_gpt: error:"), 1) << run.output;
    for (const std::string& part : bad.parts) EXPECT_NE(run.output.find(part), std::string::npos) << run.output;
  }
  EXPECT_EQ(read_file(log("out")), before);
  // A change that is allowed is reported.
  const ProgramRun run = run_program(1, replaced("--learning-rate 1e-3", "--learning-rate 2e-3"));
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(count(run.output, "--learning-rate was 0.001 when the checkpoint was written and is 0.002 now"), 1)
      << run.output;
}

TEST_F(Checkpoints, ANewRunInTheSameFolderIsRefusedUnlessItMayOverwrite) {
  must_run(1, arguments("out", "--checkpoint-every 4 --keep 2"));
  const std::string before = read_file(log("out"));
  const ProgramRun refused = run_program(2, arguments("out", "--seed 5"));
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_EQ(count(refused.output, "train_gpt: error:"), 1) << refused.output;
  for (const char* way_out : {"a run is in this folder", "--resume latest", "--output OTHER", "--overwrite"}) {
    EXPECT_EQ(count(refused.output, way_out), 1) << refused.output;
  }
  EXPECT_EQ(read_file(log("out")), before);
  EXPECT_EQ(checkpoints_in("out"), (std::set<std::string>{"step-4", "step-8"}));
  must_run(1, arguments("out", "--checkpoint-every 8 --keep 2 --seed 5 --overwrite"));
  EXPECT_EQ(checkpoints_in("out"), (std::set<std::string>{"step-8"}));
  EXPECT_EQ(Json::parse(read_file(checkpoint("out", 8) + "/manifest.json")).at("order").at("seed"), 5);
  // A pipe where the model would be written is found before the work, and stays.
  fs::create_directories(folder_ / "pipe");
  ASSERT_EQ(mkfifo((folder_ / "pipe/model.bin").c_str(), 0600), 0);
  const ProgramRun run = run_program(2, arguments("pipe"));
  EXPECT_EQ(run.status, 2) << run.output;
  EXPECT_NE(run.output.find("a run is in this folder (model.bin)"), std::string::npos) << run.output;
  const ProgramRun told_to = run_program(2, arguments("pipe", "--overwrite"));
  EXPECT_EQ(told_to.status, 2) << told_to.output;
  EXPECT_NE(told_to.output.find("pipe/model.bin: is not a regular file"), std::string::npos) << told_to.output;
  EXPECT_TRUE(fs::is_fifo(folder_ / "pipe/model.bin"));
}

TEST_F(Checkpoints, AHalfWrittenLogLineDoesNotSpoilTheNextEvent) {
  must_run(1, arguments("out", "--checkpoint-every 4"));
  const std::string whole = read_file(log("out"));
  const std::string cut = whole.substr(0, whole.size() - 10);
  write_file(log("out"), cut.data(), cut.size());
  must_run(1, arguments("out", "--resume " + checkpoint("out", 4)));
  EXPECT_EQ(events(read_file(log("out")), "step").size(), 8U);
  EXPECT_EQ(events(read_file(log("out")), "end").size(), 1U);
}

// A process of a run with this output folder that catches SIGUSR1, the earliest that can be found; 0: none yet.
pid_t rank_that_listens(const std::string& output) {
  for (const auto& process : fs::directory_iterator("/proc")) {
    const std::string name = process.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string command = read_file(process.path().string() + "/cmdline");
    if (command.find("/train_gpt") >= command.find('\0') || command.find(output) == std::string::npos) continue;
    const std::string status = read_file(process.path().string() + "/status");
    const std::size_t caught = status.find("SigCgt:");
    if (caught == std::string::npos) continue;
    if (std::stoull(status.substr(caught + 7), nullptr, 16) >> (SIGUSR1 - 1) & 1) return std::stoi(name);
  }
  return 0;
}

// Sends SIGUSR1 to a rank: as soon as it listens, or once the log has a step, to the last one.
class StoppedRun {
 public:
  StoppedRun(int ranks, const std::string& command, const std::string& output, bool early)
      : run_(std::async(std::launch::async, [=] { return run_program(ranks, command); })) {
    pid_t rank = 0;
    while (rank == 0 && !is_over()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (early) {
        rank = rank_that_listens(output);
      } else if (read_file(output + "/log.jsonl").find("\"event\":\"step\"") != std::string::npos) {
        rank = static_cast<pid_t>(read_state(output, ranks - 1)->process);
      }
    }
    if (rank != 0 && !is_over()) kill(rank, SIGUSR1);
  }
  ProgramRun result() { return run_.get(); }

 private:
  bool is_over() const { return run_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  std::future<ProgramRun> run_;
};

// All ranks stop, whichever was told; also where an optimistic step has begun the next one, and before the first step.
TEST_F(Checkpoints, AWishToStopEndsTheRunWithACheckpointToGoOnFrom) {
  const std::string constant = "--lr-schedule constant --warmup-steps 0 ";
  const auto with_steps = [&](int steps, const std::string& output, const std::string& more) {
    std::string text = arguments(output, constant + more);
    return text.replace(text.find("--steps 8"), 9, "--steps " + std::to_string(steps));
  };
  for (const std::string out : {"synchronous", "optimistic", "early"}) {
    const std::string more = "--optimizer-step " + (out == "early" ? "synchronous" : out);
    StoppedRun stopped(2, with_steps(1000000, out, more), folder_ / out, out == "early");
    const ProgramRun run = stopped.result();
    ASSERT_EQ(run.status, 75) << run.output;
    EXPECT_EQ(count(run.output, "stopped by SIGUSR1 after"), 1) << run.output;
    EXPECT_EQ(events(read_file(log(out)), "end").size(), 0U) << "the run is not over";
    const int taken = static_cast<int>(events(read_file(log(out)), "step").size());
    ASSERT_EQ(checkpoints_in(out), (std::set<std::string>{"step-" + std::to_string(taken)}));

    must_run(2, with_steps(taken + 3, out, more + " --resume latest"));
    must_run(1, with_steps(taken + 3, "unbroken", "--overwrite"));
    EXPECT_EQ(results(log(out)), results(log("unbroken")));
  }
}

}  // namespace
}  // namespace train_gpt::test
