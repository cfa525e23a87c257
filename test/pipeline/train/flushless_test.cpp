// 2bw: the bits of a plain loop that computes with old parameters, over ranks, micro-batches, delays, clipping, breaks
// and replicas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "model/optimizer.h"
#include "pipeline/train/measurement.h"
#include "pipeline/train/trainer.h"
#include "test/model/temporary_folder.h"
#include "test/pipeline/expect_equal.h"
#include "test/pipeline/train/plain_loop.h"
#include "test/pipeline/train/training_runs.h"

namespace train_gpt::test {
namespace {

using TrainingRun = test::Run;

constexpr int kSteps = 7;

TrainingRun two_bw(TrainingRun run) {
  run.schedule = "2bw";
  if (run.steps == TrainingRun{}.steps) run.steps = kSteps;
  return run;
}

std::string told(const TrainingRun& run) {
  return "p=" + std::to_string(run.ranks) + " m=" + std::to_string(run.micro_batches) +
         " w=" + std::to_string(run.warmup_factor) + " d=" + std::to_string(run.replicas);
}

// A clip value that some steps exceed and others do not.
double median_norm(TrainingRun run) {
  run.grad_clip = 0;
  std::vector<double> norms = train(run).norms;
  std::ranges::nth_element(norms, norms.begin() + kSteps / 2);
  return norms[kSteps / 2];
}

TEST(Flushless, AStepTakesItsGradientsAtTheParametersOfTheStepBefore) {
  const auto device = make_cpu_device(1);
  TrainingRun run = two_bw({.micro_batches = 3});
  run.grad_clip = median_norm(run);
  const Outcome outcome = train(run);
  const auto reference = plain(*device, run, {8}, {1});
  const auto without = plain(*device, run, {8}, {0});
  for (int step = 0; step < run.steps; ++step) {
    std::vector<MicroBatch> batches;
    for (int row = 0; row < run.micro_batches; ++row) batches.push_back(micro_batch(run.vocab, step, row));
    EXPECT_EQ(reference->step(batches).norm, outcome.norms[static_cast<std::size_t>(step)]) << step;
    without->step(batches);
  }
  EXPECT_EQ(reference->hash(), outcome.hash);
  EXPECT_NE(without->hash(), outcome.hash);
}

TEST(Flushless, RanksHaveTheBitsOfOne) {
  for (const int m : {1, 2, 3, 4, 6, 7, 8}) {
    TrainingRun alone = two_bw({.micro_batches = m});
    alone.grad_clip = median_norm(alone);
    const Outcome one = train(alone);
    for (const int p : {2, 3, 4, 8}) {
      for (const int w : {1, 2}) {
        if (m < w * (p - 1) || m > 2 * p) continue;
        TrainingRun run = alone;
        run.ranks = p;
        run.warmup_factor = w;
        const Outcome outcome = train(run);
        expect_equal(outcome, one, told(run));
        EXPECT_EQ(outcome.steady, kSteps - 2) << "all but the first and the last";
      }
    }
  }
}

TEST(Flushless, RandomDelaysChangeNothing) {
  const Outcome one = train(two_bw({.micro_batches = 4}));
  for (const int p : {2, 3, 4}) {
    const TrainingRun run = two_bw({.ranks = p, .micro_batches = 4});
    expect_equal(train(run, {.message = 3, .receive = 2, .action = 2}), one, told(run));
  }
}

TEST(Flushless, WhereThePipeIsDrainedChangesNothing) {
  const Outcome one = train(two_bw({.micro_batches = 4}));
  TrainingRun run = two_bw({.ranks = 3, .micro_batches = 4});
  for (const int every : {1, 2, 3}) {
    run.drain_every = every;
    expect_equal(train(run), one, "drained every " + std::to_string(every));
  }
  run.drain_every = 1;
  run.hash_every_step = true;  // the newest parameters, after every step
  TrainingRun alone = two_bw({.micro_batches = 4, .hash_every_step = true});
  alone.drain_every = 1;
  expect_equal(train(run), train(alone), "hashes");
}

TEST(Flushless, ValidationSeesTheNewestParameters) {
  const TrainingRun alone = two_bw({.micro_batches = 4, .validate_every = 2});
  const Outcome one = train(alone);
  EXPECT_EQ(one.hash, train(two_bw({.micro_batches = 4})).hash) << "and leaves no trace";
  TrainingRun run = alone;
  run.ranks = 4;
  expect_equal(train(run), one, "validated");
  // Behind the first step of a flush, which takes its gradients at the first parameters too.
  EXPECT_EQ(train({.micro_batches = 4, .steps = kSteps, .validate_every = 1}).validation[1],
            train(two_bw({.micro_batches = 4, .validate_every = 1})).validation[1]);
}

TEST(Flushless, ModelsHeadsAndGroups) {
  const auto expect = [](const std::string& what, const TrainingRun& run) {
    TrainingRun alone = run;
    alone.ranks = alone.replicas = 1;
    alone.micro_batches = run.micro_batches * run.replicas;
    alone.groups = run.groups == 0 ? run.replicas : run.groups;
    alone.zero = 0;
    alone.head = HeadForm::streamed;
    alone.recompute = {};
    alone.partition = {};
    alone.gradient_buffers = 2;
    expect_equal(train(run), train(alone), what);
  };
  expect("untied", two_bw({.ranks = 3, .micro_batches = 4, .tied = false}));
  expect("stored head", two_bw({.ranks = 3, .micro_batches = 4, .head = HeadForm::stored}));
  expect("recomputed", two_bw({.ranks = 2, .micro_batches = 4, .recompute = std::vector<bool>(8, true)}));
  expect("three shards of the head", two_bw({.ranks = 4, .micro_batches = 5, .vocab = 4500}));
  TrainingRun shards = two_bw({.ranks = 4, .micro_batches = 3, .partition = {3, 4, 2, 1}, .vocab = 4500});
  expect("shards on two ranks", shards);
  expect("groups", two_bw({.ranks = 3, .micro_batches = 8, .groups = 4}));
  expect("replicas", two_bw({.ranks = 2, .replicas = 2, .micro_batches = 4}));
  expect("replicas and groups", two_bw({.ranks = 3, .replicas = 2, .micro_batches = 4, .groups = 4}));
  expect("sharded moments", two_bw({.ranks = 2, .replicas = 2, .micro_batches = 4, .zero = 1}));
  expect("sharded, no slack", two_bw({.ranks = 3, .replicas = 2, .micro_batches = 2, .zero = 1}));
  expect("sharded, untied", two_bw({.ranks = 2, .replicas = 4, .micro_batches = 2, .zero = 1, .tied = false}));
  TrainingRun muon = two_bw({.ranks = 4, .micro_batches = 4});
  muon.optimizer = OptimizerKind::muon;
  expect("muon", muon);
  TrainingRun one_buffer = two_bw({.ranks = 4, .micro_batches = 4, .tied = false, .grad_clip = 0});
  one_buffer.gradient_buffers = 1;
  expect("one buffer of gradients", one_buffer);
}

TEST(Flushless, GoesOnElsewhereBitForBit) {
  const Outcome unbroken = train(two_bw({.micro_batches = 6}));
  for (const int stop : {1, 3}) {
    for (const auto& [first, second] : {std::pair{3, 1}, {1, 4}, {2, 7}}) {
      const TemporaryFolder folder;
      TrainingRun begins = two_bw({.ranks = first, .micro_batches = 6, .stop_after = stop});
      begins.save_to = folder.file(".");
      train(begins);
      TrainingRun goes_on = two_bw({.ranks = second, .micro_batches = 6, .first_step = stop});
      goes_on.resume_from = folder.file(".");
      const Outcome outcome = train(goes_on);
      const std::string what = std::to_string(first) + " to " + std::to_string(second);
      EXPECT_EQ(outcome.hash, unbroken.hash) << what;
      EXPECT_TRUE(
          std::ranges::equal(outcome.losses, std::span(unbroken.losses).subspan(static_cast<std::size_t>(stop))))
          << what;
    }
  }
}

TEST(Flushless, WithoutTheVersionBeforeItWouldNotBeTheSame) {
  const Outcome unbroken = train(two_bw({.micro_batches = 3}));
  const TemporaryFolder folder;
  TrainingRun begins = two_bw({.micro_batches = 3, .stop_after = 3});
  begins.save_to = folder.file(".");
  train(begins);
  folder.write("previous.bin", read_bytes(folder.file("model.bin")));
  TrainingRun goes_on = two_bw({.micro_batches = 3, .first_step = 3});
  goes_on.resume_from = folder.file(".");
  EXPECT_NE(train(goes_on).hash, unbroken.hash);
}

// --delay-correction error-feedback, in plain loops and in double: W - (2 u - u of the step before).
TEST(Flushless, CorrectionIsTheFormula) {
  const auto device = make_cpu_device(1);
  TrainingRun run = two_bw({.micro_batches = 2, .steps = 4});
  run.error_feedback = true;
  const Outcome outcome = train(run);
  const auto reference = plain(*device, run, {8}, {1});
  reference->correct_delay();
  for (int step = 0; step < run.steps; ++step) {
    std::vector<MicroBatch> batches;
    for (int row = 0; row < run.micro_batches; ++row) batches.push_back(micro_batch(run.vocab, step, row));
    const double norm = outcome.norms[static_cast<std::size_t>(step)];
    EXPECT_NEAR(reference->step(batches).norm, norm, 1e-4 * norm) << step;
  }
  run.error_feedback = false;
  EXPECT_GT(std::abs(train(run).norms.back() - outcome.norms.back()), 1e-2 * outcome.norms.back());
}

TEST(Flushless, CorrectionHasTheBitsOfOneRankAndGoesOn) {
  TrainingRun alone = two_bw({.micro_batches = 4});
  alone.error_feedback = true;
  for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::muon}) {
    alone.optimizer = optimizer;
    const Outcome one = train(alone);
    TrainingRun run = alone;
    run.ranks = 4;
    expect_equal(train(run), one, "four ranks");
    const TemporaryFolder folder;
    run.stop_after = 3;
    run.save_to = folder.file(".");
    train(run);
    TrainingRun goes_on = alone;
    goes_on.ranks = 2;
    goes_on.first_step = 3;
    goes_on.resume_from = folder.file(".");
    EXPECT_EQ(train(goes_on).hash, one.hash);
  }
}

// The norm of one step is no number.
class OddNorm : public cpu::CpuDevice {
 public:
  OddNorm() : CpuDevice(1) {}
  void squared_sums_all(double* sums, const float* x, std::span<const ArenaTensor> tensors) override {
    CpuDevice::squared_sums_all(sums, x, tensors);
    if (++calls_ == 4) sums[0] = std::numeric_limits<double>::infinity();
  }

 private:
  int calls_ = 0;
};

TEST(Flushless, SkippedStepsLeaveTheVersionAsItIs) {
  TrainingRun alone = two_bw({.micro_batches = 4});
  alone.make_device = [] { return std::make_unique<OddNorm>(); };
  alone.before_training = [](Trainer& trainer) { trainer.set_max_skipped(1); };
  const Outcome one = train(alone);
  EXPECT_FALSE(std::isfinite(one.norms[3]));
  EXPECT_NE(one.hash, train(two_bw({.micro_batches = 4})).hash);
  TrainingRun run = alone;
  run.ranks = 3;
  EXPECT_EQ(train(run).hash, one.hash) << "three ranks";
  run.drain_every = 4;  // after the step that was skipped
  EXPECT_EQ(train(run).hash, one.hash) << "drained after it";
}

TEST(Flushless, BubbleOfRanksThatHaveTheirStepsAtDifferentTimes) {
  const std::vector<RankTimes> ranks = {{.first_start = 0, .last_end = 10, .busy = 9},
                                        {.first_start = 7, .last_end = 19, .busy = 11}};
  const StepBubble bubble = window_bubble(ranks);
  EXPECT_DOUBLE_EQ(bubble.makespan, 11);
  EXPECT_DOUBLE_EQ(bubble.bubble, 1 - 20.0 / 22);
  EXPECT_DOUBLE_EQ(bubble.bubble_span, 1 - 11.0 / 12);
}

}  // namespace
}  // namespace train_gpt::test
