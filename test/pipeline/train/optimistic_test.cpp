// Optimistic optimizer steps: the bits of synchronous ones, whether nothing, something or everything has to be clipped.
#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/plan/speculation.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/channels.h"
#include "test/pipeline/expect_equal.h"
#include "test/pipeline/train/training_runs.h"

namespace train_gpt::test {
namespace {

constexpr int kSteps = 8;

using TrainingRun = train_gpt::test::Run;

// A clip value that some steps exceed and others do not.
double median_norm(const TrainingRun& run) {
  TrainingRun unclipped = run;
  unclipped.grad_clip = 0;
  std::vector<double> norms = train(unclipped).norms;
  std::nth_element(norms.begin(), norms.begin() + kSteps / 2, norms.end());
  return norms[kSteps / 2];
}

// Compares the schedules with one synchronous rank, at clip values that never, sometimes and always clip.
void sweep(const TrainingRun& one_rank, const std::vector<TrainingRun>& runs, const Delays& delays = {}) {
  for (const double clip : {0.0, 1e9, median_norm(one_rank), 1e-3}) {
    TrainingRun reference = one_rank;
    reference.grad_clip = clip;
    const Outcome expected = train(reference);
    for (TrainingRun run : runs) {
      const std::string what = run.schedule + " p=" + std::to_string(run.ranks) +
                               " m=" + std::to_string(run.micro_batches) + " clip=" + std::to_string(clip);
      run.grad_clip = clip;
      run.optimistic = true;
      const Outcome outcome = train(run, delays);
      expect_equal(outcome, expected, what);
      // Nothing runs ahead after the last step, nor after those that a validation follows.
      const int could_be_redone = run.steps - 1 - (run.validate_every > 0 ? (run.steps - 1) / run.validate_every : 0);
      if (clip == 0.0 || clip == 1e9) {
        EXPECT_EQ(outcome.redone, 0) << what;
      } else if (clip == 1e-3) {
        EXPECT_EQ(outcome.redone, could_be_redone) << what;
      } else {
        EXPECT_GT(outcome.redone, 0) << what;
        EXPECT_LT(outcome.redone, could_be_redone) << what;
      }
    }
  }
}

TEST(OptimisticStep, EverySchedule) {
  std::vector<TrainingRun> runs;
  for (const std::string& schedule : schedule_names()) {
    if (schedule == "dualpipe") continue;  // two groups, another reference: below
    for (const int p : {1, 2, 4}) {
      const TrainingRun run{.schedule = schedule, .ranks = p, .steps = kSteps};
      if (violation({.name = schedule, .ranks = p, .micro_batches = run.micro_batches})) continue;
      runs.push_back(run);
    }
  }
  sweep({.steps = kSteps}, runs);
}

TEST(OptimisticStep, HeadsEmbeddingsReplicasAndDirections) {
  sweep({.steps = kSteps},
        {{.schedule = "1f1b", .ranks = 4, .head = HeadForm::stored, .steps = kSteps},
         {.schedule = "zb-v", .ranks = 2, .head = HeadForm::stored, .steps = kSteps},
         {.schedule = "zb-h2", .ranks = 3, .threads = 2, .steps = kSteps},
         {.schedule = "1f1b", .ranks = 2, .recompute = std::vector<bool>(8, true), .steps = kSteps}});
  sweep({.tied = false, .steps = kSteps}, {{.schedule = "zb-h1", .ranks = 4, .tied = false, .steps = kSteps},
                                           {.schedule = "zb-v", .ranks = 2, .tied = false, .steps = kSteps}});
  sweep({.micro_batches = 8, .groups = 2, .steps = kSteps},
        {{.schedule = "1f1b", .ranks = 2, .replicas = 2, .micro_batches = 4, .steps = kSteps},
         {.schedule = "zb-h1", .ranks = 3, .micro_batches = 8, .groups = 2, .steps = kSteps},
         {.schedule = "dualpipe", .ranks = 4, .micro_batches = 8, .groups = 2, .steps = kSteps}});
}

TEST(OptimisticStep, ManyMicroBatchesFewMicroBatchesAndDelays) {
  for (const int m : {1, 3, 9}) {
    sweep({.micro_batches = m, .steps = kSteps},
          {{.schedule = "1f1b", .ranks = 4, .micro_batches = m, .steps = kSteps},
           {.schedule = "gpipe", .ranks = 3, .micro_batches = m, .steps = kSteps}});
  }
  sweep({.steps = kSteps},
        {{.schedule = "1f1b", .ranks = 4, .steps = kSteps}, {.schedule = "zb-v", .ranks = 2, .steps = kSteps}},
        {.message = 1.5, .receive = 1, .action = 0.5});
}

TEST(OptimisticStep, ValidationInBetweenSeesTheCommittedParameters) {
  sweep({.steps = kSteps, .validate_every = 3},
        {{.schedule = "1f1b", .ranks = 3, .steps = kSteps, .validate_every = 3}});
}

Plan plan_for(const std::string& schedule, int p, int m, HeadForm head) {
  const ModelConfig model{.layers = 7, .heads = 1, .hidden = 8, .vocab = 131, .max_seq_len = 8, .tied = true};
  PlanRequest request;
  request.model = model;
  request.batch = {.rows = 1, .seq_len = 8, .micro_batches = m};
  request.schedule = make_schedule({.name = schedule, .ranks = p, .micro_batches = m});
  request.partition = uniform_partition(model, request.schedule.placement.depth());
  request.head = head;
  request.spare_parameters = true;
  return make_plan(request);
}

// Each input that a forward ahead takes is the output of another one; the first action that stays adds to a
// gradient, or lacks its input.
TEST(ActionsAhead, TakeWhatRunsAheadAndAllOfIt) {
  for (const std::string& schedule : schedule_names()) {
    if (schedule == "dualpipe") continue;
    const Plan plan = plan_for(schedule, 4, 8, HeadForm::stored);
    const std::vector<std::size_t> ahead = actions_ahead(plan);
    const Schedule& lists = plan.request.schedule;
    const auto has_input = [&](const Action& action) {
      const int previous = lists.placement.stages[static_cast<std::size_t>(action.stage)].previous;
      if (previous < 0) return true;
      const int source = lists.placement.stages[static_cast<std::size_t>(previous)].rank;
      const std::vector<Action>& list = lists.actions(source);
      const auto end = list.begin() + static_cast<std::ptrdiff_t>(ahead[static_cast<std::size_t>(source)]);
      return std::any_of(list.begin(), end, [&](const Action& one) {
        return one.op == Op::forward && one.stage == previous && one.micro_batch == action.micro_batch;
      });
    };
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<Action>& list = lists.actions(rank);
      const std::size_t count = ahead[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(list[i].op, Op::forward) << schedule;
        EXPECT_TRUE(has_input(list[i])) << schedule << ", rank " << rank << ": " << to_string(list[i]);
      }
      ASSERT_LT(count, list.size());
      EXPECT_TRUE(list[count].op != Op::forward || !has_input(list[count]))
          << schedule << ", rank " << rank << ": " << to_string(list[count]) << " stays";
    }
  }
}

TEST(ActionsAhead, AreTheForwardsBeforeTheFirstGradientWhoseInputsRunAheadToo) {
  using Counts = std::vector<std::size_t>;
  // Rank r of 1F1B runs p - r forwards before its first backward; a streamed head adds to its gradient in F.
  EXPECT_EQ(actions_ahead(plan_for("1f1b", 4, 8, HeadForm::stored)), (Counts{4, 3, 2, 1}));
  EXPECT_EQ(actions_ahead(plan_for("1f1b", 4, 8, HeadForm::streamed)), (Counts{4, 3, 2, 0}));
  EXPECT_EQ(actions_ahead(plan_for("gpipe", 3, 5, HeadForm::stored)), (Counts{5, 5, 5}));
  EXPECT_EQ(actions_ahead(plan_for("zb-h2", 3, 8, HeadForm::streamed)), (Counts{5, 3, 0}));
  const Plan plan = plan_for("1f1b", 4, 8, HeadForm::streamed);
  const Counts ahead = actions_ahead(plan);
  const ChannelTable table(plan.request.schedule.placement);
  for (std::size_t c = 0; c < table.channels().size(); ++c) {
    const Channel& channel = table.channels()[c];
    const int expected = channel.kind == Channel::Kind::activation
                             ? static_cast<int>(ahead[static_cast<std::size_t>(channel.source)])
                             : 0;
    EXPECT_EQ(messages_ahead(plan, ahead, static_cast<int>(c)), expected) << c;
  }
}

}  // namespace
}  // namespace train_gpt::test
