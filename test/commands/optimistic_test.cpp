// --optimizer-step optimistic under mpirun: the synchronous run's numbers, and a log that counts what was done again.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "test/commands/program.h"
#include "test/golden_formula.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;

struct Told {
  std::vector<std::string> results;  // loss, norm and learning rate of every step, then the hash
  int redone = 0;
  Json end;
};

Told told_by(const std::string& log) {
  Told told;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event.at("event") == "step") {
      told.results.push_back(event.at("loss").dump() + " " + event.at("grad_norm").dump() + " " +
                             event.at("lr").dump());
      told.redone += event.value("redone", false) ? 1 : 0;
    }
    if (event.at("event") == "end") told.end = event;
  }
  told.results.push_back(told.end.at("parameter_hash"));
  return told;
}

TEST(OptimisticStep, GivesTheSynchronousNumbersAndCountsWhatItDidAgain) {
  const Folder folder;
  const std::vector<char> tokens = golden::token_file(golden::kTrainTokens, golden::kTrainSeed);
  write_file(folder / "train.bin", tokens.data(), tokens.size());
  const std::string common = "--train-data " + (folder / "train.bin") + " --val-data " + (folder / "train.bin") +
                             " --layers 2 --heads 2 --hidden 32 --vocab 1009 --max-seq-len 32 --seq-len 32 "
                             "--micro-batch-size 1 --micro-batches 6 --steps 9 --checkpoint-every 4 --val-every 3 "
                             "--val-batches 1 --threads 1 --overwrite --output " +
                             (folder / "out");
  const auto run = [&](int ranks, const std::string& more) {
    const ProgramRun program = run_program(ranks, common + " " + more);
    EXPECT_EQ(program.status, 0) << more << "\n" << program.output;
    return told_by(read_file(folder / "out/log.jsonl"));
  };
  // Steps 0, 1, 4 and 6 go straight on; after each of the others comes a validation, a checkpoint or the end.
  constexpr int kStraightOn = 4;
  for (const std::string clip : {"0", "0.01"}) {
    const Told synchronous = run(1, "--grad-clip " + clip);
    EXPECT_FALSE(synchronous.end.contains("redone_steps"));
    for (const std::string schedule : {"1f1b", "zb-h1", "zb-v"}) {
      const std::string more = "--optimizer-step optimistic --schedule " + schedule + " --grad-clip " + clip;
      const Told optimistic = run(3, more + (schedule == "1f1b" ? " --synchronous-sends" : ""));
      EXPECT_EQ(optimistic.results, synchronous.results) << more;
      EXPECT_EQ(optimistic.redone, clip == "0" ? 0 : kStraightOn) << more;
      EXPECT_EQ(optimistic.end.at("redone_steps"), optimistic.redone) << more;
    }
  }
}

}  // namespace
}  // namespace train_gpt::test
