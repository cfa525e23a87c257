// pipedream: the bits of a plain loop in which each stage has its own delay, over ranks, micro-batches, random delays
// and breaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "pipeline/train/trainer.h"
#include "test/model/temporary_folder.h"
#include "test/pipeline/expect_equal.h"
#include "test/pipeline/train/plain_loop.h"

namespace train_gpt::test {
namespace {

using TrainingRun = test::Run;

constexpr int kSteps = 5;

TrainingRun pipedream(TrainingRun run) {
  run.schedule = "pipedream";
  run.tied = false;
  run.grad_clip = 0;
  if (run.steps == TrainingRun{}.steps) run.steps = kSteps;
  return run;
}

std::string told(const TrainingRun& run) {
  return "p=" + std::to_string(run.ranks) + " m=" + std::to_string(run.micro_batches);
}

Partition cut_of(const TrainingRun& run) {
  return uniform_partition({.layers = run.layers,
                            .heads = run.heads,
                            .hidden = run.hidden,
                            .vocab = run.vocab,
                            .max_seq_len = kSeqLen,
                            .tied = run.tied},
                           run.ranks);
}

// Stage s computes with the parameters of p-1-s updates before the newest: F(i) and B(i) with version max(0,
// i-(p-1-s)).
std::vector<int> delays_of(int p) {
  std::vector<int> delays;
  for (int s = 0; s < p; ++s) delays.push_back(p - 1 - s);
  return delays;
}

TEST(PipeDream, HasTheBitsOfALoopThatKeepsVersionsByTheFormula) {
  const auto device = make_cpu_device(1);
  for (const int p : {1, 2, 3, 4}) {
    for (const int m : {std::max(1, p - 1), p + 1}) {
      const TrainingRun run = pipedream({.ranks = p, .micro_batches = m});
      const Outcome outcome = train(run);
      const auto reference = plain(*device, run, cut_of(run), delays_of(p));
      for (int step = 0; step < run.steps; ++step) {
        double loss = 0, norm = 0;
        for (int row = 0; row < m; ++row) {
          const std::vector<MicroBatch> one = {micro_batch(run.vocab, step, row)};
          const PlainTrainer::StepResult result = reference->step(one);
          loss += result.loss / m;
          norm = result.norm;
        }
        const auto at = static_cast<std::size_t>(step);
        EXPECT_NEAR(outcome.losses[at], loss, 1e-12) << told(run) << ", step " << step;
        EXPECT_EQ(outcome.norms[at], norm) << told(run) << ", step " << step << ": of its last micro-batch";
      }
      EXPECT_EQ(outcome.hash, reference->hash()) << told(run);
      EXPECT_EQ(outcome.steady, kSteps - 2) << "all but the first and the last";
    }
  }
}

// Were all stages as old as the first, or none of them, the numbers would be others.
TEST(PipeDream, EachStageHasItsOwnDelay) {
  const auto device = make_cpu_device(1);
  const TrainingRun run = pipedream({.ranks = 3, .micro_batches = 3});
  const Outcome outcome = train(run);
  for (const std::vector<int>& delays : {std::vector<int>{2, 2, 2}, {0, 0, 0}, {2, 1, 1}}) {
    const auto other = plain(*device, run, cut_of(run), delays);
    for (int i = 0; i < run.steps * 3; ++i) {
      const std::vector<MicroBatch> one = {micro_batch(run.vocab, i / 3, i % 3)};
      other->step(one);
    }
    EXPECT_NE(outcome.hash, other->hash()) << delays[0] << delays[1] << delays[2];
  }
}

TEST(PipeDream, RandomDelaysChangeNothing) {
  for (const int p : {2, 3, 4}) {
    const TrainingRun run = pipedream({.ranks = p, .micro_batches = 4});
    expect_equal(train(run, {.message = 3, .receive = 2, .action = 2}), train(run), told(run));
  }
}

TEST(PipeDream, WhereThePipeIsDrainedChangesNothing) {
  TrainingRun run = pipedream({.ranks = 4, .micro_batches = 4});
  const Outcome unbroken = train(run);
  for (const int every : {1, 2}) {
    run.drain_every = every;
    expect_equal(train(run), unbroken, "drained every " + std::to_string(every));
  }
}

TEST(PipeDream, ModelsAndHeads) {
  const auto device = make_cpu_device(1);
  TrainingRun shards = pipedream({.ranks = 3, .micro_batches = 3, .partition = {4, 4, 2}, .steps = 3, .vocab = 4500});
  const TrainingRun recomputed =
      pipedream({.ranks = 2, .micro_batches = 3, .recompute = std::vector<bool>(8, true), .steps = 3});
  for (const TrainingRun& run : {shards, recomputed}) {
    const Outcome outcome = train(run);
    const auto reference =
        plain(*device, run, run.partition.empty() ? cut_of(run) : run.partition, delays_of(run.ranks));
    for (int i = 0; i < run.steps * run.micro_batches; ++i) {
      const std::vector<MicroBatch> one = {micro_batch(run.vocab, i / run.micro_batches, i % run.micro_batches)};
      reference->step(one);
    }
    EXPECT_EQ(outcome.hash, reference->hash()) << told(run);
  }
  TrainingRun muon = pipedream({.ranks = 3, .micro_batches = 3});
  muon.optimizer = OptimizerKind::muon;
  const Outcome unbroken = train(muon);
  muon.drain_every = 1;
  expect_equal(train(muon), unbroken, "muon");
}

TEST(PipeDream, ValidationSeesTheNewestParametersAndLeavesNoTrace) {
  TrainingRun run = pipedream({.ranks = 3, .micro_batches = 3});
  const Outcome without = train(run);
  run.validate_every = 2;
  const Outcome outcome = train(run);
  EXPECT_EQ(outcome.hash, without.hash);
  // After two steps: the newest parameters are those that a run of two steps ends with.
  const auto device = make_cpu_device(1);
  const auto reference = plain(*device, run, cut_of(run), delays_of(3));
  for (int i = 0; i < 2 * 3; ++i) {
    const std::vector<MicroBatch> one = {micro_batch(run.vocab, i / 3, i % 3)};
    reference->step(one);
  }
  double loss = 0;
  for (int row = 0; row < 3; ++row) {
    for (const float one : reference->chain().validate(micro_batch(run.vocab, 1000, row)))
      loss += static_cast<double>(one) / (3 * kSeqLen);
  }
  EXPECT_NEAR(outcome.validation[1], loss, 1e-12);
}

TEST(PipeDream, GoesOnBitForBit) {
  for (const int p : {1, 2, 4}) {
    const Outcome unbroken = train(pipedream({.ranks = p, .micro_batches = 4}));
    for (const int stop : {1, 3}) {
      const TemporaryFolder folder;
      TrainingRun begins = pipedream({.ranks = p, .micro_batches = 4, .stop_after = stop});
      begins.save_to = folder.file(".");
      train(begins);
      TrainingRun goes_on = pipedream({.ranks = p, .micro_batches = 4, .first_step = stop});
      goes_on.resume_from = folder.file(".");
      EXPECT_EQ(train(goes_on).hash, unbroken.hash) << told(goes_on) << " from " << stop;
      if (p == 1) continue;
      folder.write("previous.bin", read_bytes(folder.file("model.bin")));
      EXPECT_NE(train(goes_on).hash, unbroken.hash) << "and not without the version before";
    }
  }
}

}  // namespace
}  // namespace train_gpt::test
