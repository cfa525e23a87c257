// Muon works on whole matrices, which a pipeline never cuts: one run, one hash, over every layout.
#include <gtest/gtest.h>

#include <algorithm>

#include "model/checkpoint.h"
#include "test/model/temporary_folder.h"
#include "test/pipeline/train/training_runs.h"
#include "test/refused.h"

namespace train_gpt::test {
namespace {

Run muon(Run run) {
  run.optimizer = OptimizerKind::muon;
  return run;
}

TEST(TrainerMuon, HasOneHashOverRanksSchedulesCutsAndThreads) {
  const Outcome expected = train(muon({}));
  EXPECT_NE(expected.hash, train({}).hash);
  EXPECT_EQ(train(muon({.threads = 3})), expected);
  EXPECT_EQ(train(muon({.schedule = "1f1b", .ranks = 2})), expected);
  EXPECT_EQ(train(muon({.schedule = "1f1b", .ranks = 3, .partition = {1, 6, 1}})), expected);
  EXPECT_EQ(train(muon({.schedule = "zb-v", .ranks = 2, .threads = 2})), expected);
  EXPECT_EQ(train(muon({.schedule = "interleaved", .ranks = 4})), expected);
  const Outcome groups = train(muon({.groups = 2}));
  EXPECT_EQ(train(muon({.schedule = "1f1b", .ranks = 2, .replicas = 2, .micro_batches = 2})), groups);
  EXPECT_EQ(train(muon({.schedule = "dualpipe", .ranks = 2, .groups = 2})), groups);
}

// Clipping bites in some steps: updates ahead stand in the others.
TEST(TrainerMuon, OptimisticStepsHaveItsBits) {
  std::vector<double> norms = train(muon({.steps = 8, .grad_clip = 0})).norms;
  std::sort(norms.begin(), norms.end());
  const double clip = norms[4];
  const Outcome expected = train(muon({.steps = 8, .grad_clip = clip}));
  const Outcome ahead =
      train(muon({.schedule = "1f1b", .ranks = 2, .steps = 8, .grad_clip = clip, .optimistic = true}));
  EXPECT_EQ(ahead, expected);
  EXPECT_GT(ahead.redone, 0);
  EXPECT_LT(ahead.redone, 8);
}

TEST(TrainerMuon, ResumesElsewhereBitForBitAndRefusesAnotherOptimizersState) {
  const Outcome unbroken = train(muon({.steps = 6}));
  const TemporaryFolder folder;
  train(muon({.schedule = "1f1b", .ranks = 3, .steps = 6, .stop_after = 3, .save_to = folder.file(".")}));
  test::Run second =
      muon({.schedule = "zb-v", .ranks = 2, .steps = 6, .first_step = 3, .resume_from = folder.file(".")});
  EXPECT_EQ(train(second).hash, unbroken.hash);
  second = {.steps = 6, .first_step = 3, .resume_from = folder.file(".")};
  EXPECT_REFUSED(train(second), "optimizer.bin", "Muon", "AdamW");
}

}  // namespace
}  // namespace train_gpt::test
