// Sharded data parallelism: the bits of one rank that adds up the same groups of micro-batches, the plan's bytes, and
// what is reduced when.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "pipeline/plan/lowering.h"
#include "pipeline/plan/shards.h"
#include "pipeline/train/trainer.h"
#include "test/model/temporary_folder.h"
#include "test/pipeline/expect_equal.h"
#include "test/pipeline/plan/sharded_request.h"
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
  const Outcome one = train({.micro_batches = 16, .groups = 4, .validate_every = 2, .hash_every_step = true});
  const auto expect = [&](TrainingRun run) {
    run.micro_batches = 16 / run.replicas;
    run.groups = 4;
    run.validate_every = 2;
    run.hash_every_step = true;
    for (run.zero = 1; run.zero <= (run.optimistic ? 2 : 3); ++run.zero) {
      expect_equal(train(run), one,
                   run.schedule + " p=" + std::to_string(run.ranks) + " d=" + std::to_string(run.replicas) +
                       " zero=" + std::to_string(run.zero));
    }
  };
  expect({.schedule = "gpipe", .ranks = 1, .replicas = 4});
  expect({.schedule = "1f1b", .ranks = 3, .replicas = 2});
  expect({.schedule = "interleaved", .ranks = 2, .chunks = 4, .replicas = 2});
  expect({.schedule = "zb-h1", .ranks = 2, .replicas = 4});
  expect({.schedule = "zb-v", .ranks = 2, .replicas = 2});
  expect({.schedule = "breadth-first", .ranks = 1, .chunks = 8, .replicas = 2});
  expect({.schedule = "breadth-first", .ranks = 2, .chunks = 4, .replicas = 2});
  expect({.schedule = "dualpipe", .ranks = 2, .replicas = 2});
  expect({.schedule = "1f1b", .ranks = 2, .replicas = 2, .optimistic = true});
}

// With enough units for windows to pay on every rank.
TrainingRun in_windows(TrainingRun run) {
  run.layers = 11;
  run.schedule = "breadth-first";
  run.chunks = 24 / run.ranks;
  run.zero = 3;
  run.before_training = [](Trainer& trainer) {
    EXPECT_TRUE(trainer.memory().plan().parameter_windows);
    EXPECT_TRUE(trainer.memory().plan().gradient_windows);
  };
  return run;
}

// Validation and the hash come between steps; what takes part is whole at the right time in whatever order messages
// arrive.
TEST(Sharding, WindowsKeepTheBitsOfOneRank) {
  TrainingRun run{.micro_batches = 8, .groups = 4, .steps = 5, .validate_every = 2, .layers = 11};
  run.hash_every_step = true;
  const Outcome one = train(run);
  const auto expect = [&](int ranks, int replicas, const Delays& delays) {
    TrainingRun sharded = run;
    sharded.ranks = ranks;
    sharded.replicas = replicas;
    sharded.micro_batches = 8 / replicas;
    expect_equal(train(in_windows(sharded), delays), one, std::to_string(ranks) + " x " + std::to_string(replicas));
  };
  expect(1, 2, {});
  expect(1, 4, {});
  expect(2, 2, {});
  expect(3, 2, {});
  expect(1, 4, {.message = 0.5, .receive = 0.5, .action = 0.5});
  expect(2, 2, {.message = 0.5, .receive = 0.5, .action = 0.5});
}

TEST(Sharding, WindowsKeepTheBitsOfMuonAndOfUntiedModels) {
  for (const bool tied : {false, true}) {
    const OptimizerKind optimizer = tied ? OptimizerKind::muon : OptimizerKind::adamw;
    TrainingRun run{.micro_batches = 8, .groups = 4, .tied = tied, .optimizer = optimizer, .layers = 11};
    const Outcome one = train(run);
    run.replicas = 2;
    run.micro_batches = 4;
    expect_equal(train(in_windows(run)), one, tied ? "muon" : "untied");
  }
}

TEST(Sharding, CheckpointsComeFromPieces) {
  const TemporaryFolder folder;
  const TrainingRun whole{.micro_batches = 8, .groups = 4, .steps = 4, .layers = 11};
  TrainingRun first = whole;
  first.replicas = 4;
  first.micro_batches = 2;
  first.stop_after = 2;
  first.save_to = folder.file(".");
  train(in_windows(first));
  TrainingRun second = whole;
  second.ranks = 2;
  second.replicas = 2;
  second.micro_batches = 4;
  second.first_step = 2;
  second.resume_from = folder.file(".");
  EXPECT_EQ(train(in_windows(second)).hash, train(whole).hash);
}

TEST(Sharding, CutsTensorsOfSeveralAtoms) {
  const auto expect = [](const std::string& what, TrainingRun run) {
    TrainingRun alone = run;
    alone.schedule = "gpipe";
    alone.ranks = alone.replicas = 1;
    alone.chunks = 0;
    alone.micro_batches = run.micro_batches * run.replicas;
    alone.groups = run.replicas;
    const Outcome expected = train(alone);
    for (run.zero = 1; run.zero <= 3; ++run.zero) {
      expect_equal(train(run), expected, what + ", --zero " + std::to_string(run.zero));
    }
  };
  expect("p=1", with_atoms({.replicas = 2, .micro_batches = 2}));
  expect("p=1 of units", with_atoms({.schedule = "breadth-first", .chunks = 6, .replicas = 2, .micro_batches = 2}));
  expect("untied",
         with_atoms(
             {.schedule = "breadth-first", .ranks = 2, .chunks = 3, .replicas = 2, .micro_batches = 2, .tied = false}));
  TrainingRun shards = with_atoms({.schedule = "1f1b", .ranks = 4, .replicas = 2, .micro_batches = 2});
  shards.vocab = 4500;  // three shards of the head, on two ranks
  expect("shards of a tied head", shards);
  shards.schedule = "breadth-first";
  shards.ranks = 1;
  shards.chunks = 8;
  expect("shards of a tied head beside its embedding", shards);
}

// No power of two: replicas are added in rank order.
TEST(Sharding, ThreeReplicasHaveOneHash) {
  TrainingRun three = with_atoms({.schedule = "zb-v", .ranks = 2, .replicas = 3, .micro_batches = 4});
  const Outcome replicas = train(three);
  for (three.zero = 1; three.zero <= 3; ++three.zero) expect_equal(train(three), replicas, std::to_string(three.zero));
  three = with_atoms({.schedule = "breadth-first", .chunks = 6, .replicas = 3, .micro_batches = 4, .zero = 3});
  expect_equal(train(three), replicas, "units");
}

TEST(Sharding, DealsWholeMatricesOutWithMuon) {
  TrainingRun run = with_atoms({.replicas = 2, .micro_batches = 2, .optimizer = OptimizerKind::muon});
  const Outcome expected = train(run);
  for (run.zero = 1; run.zero <= 3; ++run.zero) {
    run.schedule = "1f1b";
    run.ranks = 2;
    run.chunks = 0;
    expect_equal(train(run), expected, "1f1b, --zero " + std::to_string(run.zero));
    run.schedule = "breadth-first";
    run.ranks = 1;
    run.chunks = 6;
    expect_equal(train(run), expected, "units, --zero " + std::to_string(run.zero));
  }
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
  const TrainingRun whole = with_atoms({.micro_batches = 8, .groups = 4, .steps = 6, .validate_every = 2});
  const Outcome unbroken = train(whole);
  for (const int zero : {1, 2, 3}) {
    const TemporaryFolder folder;
    TrainingRun first = with_atoms({.schedule = "breadth-first", .ranks = 2, .chunks = 3, .replicas = 2});
    first.micro_batches = 4;
    first.groups = 4;
    first.steps = 6;
    first.zero = zero;
    first.stop_after = 2;
    first.save_to = folder.file(".");
    train(first);
    TrainingRun second = with_atoms({.schedule = "breadth-first", .chunks = 6, .replicas = 4, .micro_batches = 2});
    second.groups = 4;
    second.steps = 6;
    second.zero = 4 - zero;
    second.first_step = 2;
    second.stop_after = 4;
    second.resume_from = second.save_to = folder.file(".");
    train(second);
    TrainingRun third = with_atoms({.schedule = "zb-v", .ranks = 2, .micro_batches = 8, .groups = 4});
    third.steps = 6;
    third.first_step = 4;
    third.resume_from = folder.file(".");
    EXPECT_EQ(train(third).hash, unbroken.hash) << zero;
  }
}

// A reduction is issued in the middle of the W whose gradients it takes.
TEST(Sharding, PartsLeaveWithinTheLastW) {
  for (const auto& [schedule, ranks, chunks, zero] :
       {std::tuple{"1f1b", 2, 0, 0}, {"zb-v", 2, 0, 1}, {"breadth-first", 1, 12, 3}}) {
    TrainingRun run{.schedule = schedule, .ranks = ranks, .chunks = chunks, .replicas = 2, .zero = zero, .layers = 11};
    run.after_training = [name = std::string(schedule), zero = zero](Trainer& trainer) {
      EXPECT_EQ(trainer.memory().plan().parameter_windows.has_value(), zero == 3);
      int within = 0;
      for (std::size_t i = 0; i < trainer.lowered().size(); ++i) {
        const LoweredAction& action = trainer.lowered()[i];
        if (action.within < 0) continue;
        ++within;
        const ActionMarks& last_weight = trainer.last_step_marks()[action.after - 1];
        EXPECT_GT(trainer.lowered_marks()[i].issued, last_weight.middle) << name;
        EXPECT_LT(trainer.lowered_marks()[i].issued, last_weight.end) << name;
      }
      EXPECT_GE(within, 3) << name;
    };
    train(run);
  }
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

// A stage's gradients leave after its last W, and its parameters come before its first F.
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
