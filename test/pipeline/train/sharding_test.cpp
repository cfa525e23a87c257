// Sharded data parallelism: the bits of one rank that adds up the same groups of micro-batches, the plan's bytes, and
// what is reduced when.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pipeline/plan/lowering.h"
#include "pipeline/plan/shards.h"
#include "pipeline/schedule/catalog.h"
#include "test/model/temporary_folder.h"
#include "test/pipeline/expect_equal.h"
#include "test/pipeline/train/training_runs.h"

namespace train_gpt::test {
namespace {

using TrainingRun = test::Run;

// Tensors of several atoms, and of which no number is divisible by 3: fcw has 4 * 144 * 144 = 82,944 elements.
TrainingRun with_atoms(TrainingRun run) {
  run.heads = 2;
  run.hidden = 144;
  run.layers = 2;
  return run;
}

TEST(Sharding, KeepsTheBitsOfOneRankUnderEverySchedule) {
  const Outcome one = train({.micro_batches = 16, .groups = 4, .hash_every_step = true});
  const auto expect = [&](TrainingRun run) {
    run.micro_batches = 16 / run.replicas;
    run.groups = 4;
    run.zero = 1;
    run.hash_every_step = true;
    expect_equal(train(run), one,
                 run.schedule + " p=" + std::to_string(run.ranks) + " d=" + std::to_string(run.replicas));
  };
  expect({.schedule = "gpipe", .ranks = 1, .replicas = 4});
  expect({.schedule = "1f1b", .ranks = 3, .replicas = 2});
  expect({.schedule = "interleaved", .ranks = 2, .replicas = 2});
  expect({.schedule = "zb-h1", .ranks = 2, .replicas = 4});
  expect({.schedule = "zb-v", .ranks = 2, .replicas = 2});
  expect({.schedule = "breadth-first", .ranks = 2, .replicas = 2});
  expect({.schedule = "dualpipe", .ranks = 2, .replicas = 2});
  expect({.schedule = "1f1b", .ranks = 2, .replicas = 2, .optimistic = true});
}

TEST(Sharding, CutsTensorsOfSeveralAtoms) {
  const auto expect = [](const std::string& what, TrainingRun run) {
    TrainingRun alone = run;
    alone.schedule = "gpipe";
    alone.ranks = alone.replicas = 1;
    alone.micro_batches = run.micro_batches * run.replicas;
    alone.groups = run.replicas;
    run.zero = 1;
    expect_equal(train(run), train(alone), what);
  };
  expect("p=1", with_atoms({.replicas = 2, .micro_batches = 2}));
  expect("untied", with_atoms({.schedule = "1f1b", .ranks = 2, .replicas = 2, .micro_batches = 2, .tied = false}));
  TrainingRun shards = with_atoms({.schedule = "1f1b", .ranks = 4, .replicas = 2, .micro_batches = 2});
  shards.vocab = 4500;  // three shards of the head, on two ranks
  expect("shards of a tied head", shards);
  TrainingRun three = with_atoms({.schedule = "zb-v", .ranks = 2, .replicas = 3, .micro_batches = 4});
  const Outcome replicas = train(three);
  three.zero = 1;
  expect_equal(train(three), replicas, "three replicas");
}

TEST(Sharding, ClippedAndRedoneStepsGatherAgain) {
  TrainingRun run{.schedule = "1f1b", .ranks = 2, .replicas = 2, .micro_batches = 4, .steps = 8, .grad_clip = 1e9};
  std::vector<double> norms = train(run).norms;
  std::ranges::sort(norms);
  run.grad_clip = norms[4];  // exceeded by some steps
  const Outcome synchronous = train(run);
  run.zero = 1;
  run.optimistic = true;
  const Outcome optimistic = train(run);
  expect_equal(optimistic, synchronous, "optimistic");
  EXPECT_GT(optimistic.redone, 0);
  EXPECT_LT(optimistic.redone, 7);
}

TEST(Sharding, CheckpointsDoNotKnowOfIt) {
  const TemporaryFolder folder;
  const TrainingRun whole = with_atoms({.micro_batches = 8, .groups = 4, .steps = 6, .validate_every = 2});
  const Outcome unbroken = train(whole);
  TrainingRun first = with_atoms({.schedule = "1f1b", .ranks = 2, .replicas = 2, .micro_batches = 4, .groups = 4});
  first.steps = 6;
  first.zero = 1;
  first.stop_after = 2;
  first.save_to = folder.file(".");
  train(first);
  TrainingRun second = with_atoms({.schedule = "gpipe", .replicas = 4, .micro_batches = 2, .groups = 4});
  second.steps = 6;
  second.zero = 1;
  second.first_step = 2;
  second.stop_after = 4;
  second.resume_from = second.save_to = folder.file(".");
  train(second);
  TrainingRun third = with_atoms({.schedule = "zb-v", .ranks = 2, .micro_batches = 8, .groups = 4});
  third.steps = 6;
  third.first_step = 4;
  third.resume_from = folder.file(".");
  EXPECT_EQ(train(third).hash, unbroken.hash);
}

PlanRequest request_of(const std::string& schedule, int p, int d, int zero) {
  const ModelConfig model{.layers = 11, .heads = 2, .hidden = 128, .vocab = 131, .max_seq_len = 16};
  PlanRequest request;
  request.model = model;
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = 8, .replicas = d, .groups = d};
  request.schedule = make_schedule({.name = schedule, .ranks = p, .micro_batches = 8});
  request.batch.groups = d * request.directions();
  request.partition = uniform_partition(model, request.schedule.placement.depth());
  request.zero = zero;
  return request;
}

// Every element of a rank has one owner among the replicas, atoms are whole, and a piece is at most an atom larger than
// its share.
TEST(Sharding, PiecesOfReplicasAreTheWhole) {
  for (const char* schedule : {"1f1b", "zb-v", "dualpipe"}) {
    for (const int d : {2, 3, 4, 8}) {
      const Plan plan = make_plan(request_of(schedule, 2, d, 1));
      for (const RankPlan& rank : plan.ranks) {
        std::int64_t largest = 0;
        std::vector<int> owners(static_cast<std::size_t>(atom_count(plan.request.model)), 0);
        for (int k = 0; k < d; ++k) {
          const Shard shard = shard_of(rank, k);
          std::int64_t end = 0;
          for (const ArenaLayout::Entry& part : shard.in_shard.entries) {
            end = std::max(end, part.offset + part.info.elements);
            for (std::int64_t a = 0; a < part.info.atoms(); ++a) {
              ++owners[static_cast<std::size_t>(part.info.first_atom + a)];
            }
          }
          EXPECT_LE(end, shard_elements(rank.sections)) << schedule << " d=" << d;
          largest = std::max(largest, end);
        }
        const auto sections = static_cast<std::int64_t>(rank.sections.size());
        EXPECT_LE(largest, rank.layout.elements / d + sections * kAtomElements);
        for (const ArenaLayout::Entry& entry : rank.layout.entries) {
          for (std::int64_t a = 0; a < entry.info.atoms(); ++a) {
            EXPECT_EQ(owners[static_cast<std::size_t>(entry.info.first_atom + a)], 1) << entry.info.name;
          }
        }
        EXPECT_EQ(rank.bytes_of(MemoryUse::first_moment),
                  (shard_elements(rank.sections) * std::int64_t{sizeof(float)} + 255) / 256 * 256);
      }
    }
  }
}

// A stage's gradients leave behind its last W, and its parameters come before its first F.
TEST(Sharding, ReductionsAndGathersStandWhereTheirStageEndsAndBegins) {
  for (const char* schedule : {"interleaved", "zb-v", "breadth-first"}) {
    const Plan plan = make_plan(request_of(schedule, 2, 2, 1));
    for (const RankPlan& rank : plan.ranks) {
      const std::vector<Action>& list = plan.request.schedule.actions(rank.rank);
      std::size_t reduced = 0, gathered = 0;
      for (const LoweredAction& action : lower(plan, rank.rank)) {
        if (action.kind != LoweredAction::Kind::reduce_replicas && action.kind != LoweredAction::Kind::gather) continue;
        const int stage = rank.sections[static_cast<std::size_t>(action.section)].stage;
        const auto is_of_stage = [&](const Action& one) { return one.stage == stage; };
        if (action.kind == LoweredAction::Kind::gather) {
          ++gathered;
          EXPECT_EQ(action.before, static_cast<std::size_t>(std::ranges::find_if(list, is_of_stage) - list.begin()));
        } else {
          ++reduced;
          EXPECT_TRUE(is_of_stage(list[action.after - 1])) << schedule;
          EXPECT_TRUE(std::none_of(list.begin() + static_cast<std::ptrdiff_t>(action.after), list.end(), is_of_stage));
        }
      }
      EXPECT_EQ(reduced, rank.sections.size()) << schedule;
      EXPECT_GE(gathered, 2U) << schedule;
    }
  }
}

}  // namespace
}  // namespace train_gpt::test
