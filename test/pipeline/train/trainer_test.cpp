// The bitwise contract: schedule, ranks, chunks, partition, threads and head form do not change a bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include "pipeline/schedule/catalog.h"
#include "pipeline/train/trainer.h"
#include "test/pipeline/expect_equal.h"
#include "test/pipeline/train/training_runs.h"

namespace train_gpt::test {
namespace {

using TrainingRun = train_gpt::test::Run;

TEST(Trainer, LearnsOnOneRank) {
  const Outcome run = train({.steps = 3});
  ASSERT_EQ(run.losses.size(), 3U);
  EXPECT_NEAR(run.losses[0], std::log(131.0), 0.1);
  EXPECT_GT(run.norms[0], 0);
  EXPECT_EQ(run.hash.size(), 16U);
}

TEST(Trainer, EverySchedulePartitionAndRankCountGivesTheBitsOfOneRank) {
  for (const int m : {1, 3, 4}) {
    const Outcome one = train({.micro_batches = m, .validate_every = 2});
    for (const char* schedule : {"gpipe", "1f1b"}) {
      for (const int p : {1, 2, 3, 4, 6, 8}) {
        expect_equal(train({.schedule = schedule, .ranks = p, .micro_batches = m, .validate_every = 2}), one,
                     std::string(schedule) + " p=" + std::to_string(p) + " m=" + std::to_string(m));
      }
    }
  }
  const Outcome one = train({});
  expect_equal(train({.schedule = "1f1b", .ranks = 2, .threads = 2}), one, "two threads");
  expect_equal(train({.schedule = "1f1b", .ranks = 3, .partition = {1, 6, 1}}), one, "another partition");
  expect_equal(train({.schedule = "1f1b", .ranks = 2, .head = HeadForm::stored}), one, "stored head");
  expect_equal(train({.schedule = "1f1b", .ranks = 2, .recompute = std::vector<bool>(8, true)}), one, "recomputed");
}

TEST(Trainer, SchedulesWithChunksAndSplitBackwardGiveTheBitsOfOneRank) {
  const Outcome one = train({});
  for (const char* schedule : {"interleaved", "breadth-first", "zb-h1", "zb-h2", "interleaved-zb", "zb-v"}) {
    for (const int p : {1, 2, 4}) {
      expect_equal(train({.schedule = schedule, .ranks = p}), one, std::string(schedule) + " p=" + std::to_string(p));
    }
  }
}

// Two layers and a head of three shards: eight units.
TrainingRun with_shards(TrainingRun run) {
  run.layers = 2;
  run.hidden = 12;
  run.vocab = 6100;
  run.validate_every = 2;
  return run;
}

TEST(Trainer, ShardsOfTheHeadLieOnAnyRanks) {
  const Outcome one = train(with_shards({}));
  for (const int p : {2, 3, 4, 8}) {
    expect_equal(train(with_shards({.schedule = "1f1b", .ranks = p})), one, "1f1b p=" + std::to_string(p));
  }
  for (const Partition& cut : {Partition{5, 3}, {6, 2}, {7, 1}, {1, 7}}) {
    for (const bool recompute : {false, true}) {
      for (const HeadForm head : {HeadForm::streamed, HeadForm::stored}) {
        expect_equal(train(with_shards({.schedule = "1f1b",
                                        .ranks = 2,
                                        .threads = cut[0] % 2 == 0 ? 2 : 1,
                                        .partition = cut,
                                        .head = head,
                                        .recompute = std::vector<bool>(8, recompute)})),
                     one, "1f1b, cut after " + std::to_string(cut[0]));
      }
    }
  }
  for (const Partition& cut : {Partition{2, 2, 2, 2}, {5, 1, 1, 1}, {1, 4, 2, 1}}) {
    const std::string text = " with " + std::to_string(cut[0]) + " units first";
    expect_equal(train(with_shards({.schedule = "zb-h1", .ranks = 4, .partition = cut})), one, "zb-h1" + text);
    expect_equal(train(with_shards({.schedule = "interleaved", .ranks = 2, .partition = cut})), one,
                 "interleaved" + text);
    expect_equal(train(with_shards({.schedule = "interleaved-zb", .ranks = 2, .partition = cut})), one,
                 "interleaved-zb" + text);
    expect_equal(train(with_shards({.schedule = "zb-v", .ranks = 2, .partition = cut})), one, "zb-v" + text);
  }
  expect_equal(train(with_shards({.schedule = "zb-v", .ranks = 4})), one, "zb-v p=4");
  expect_equal(train(with_shards({.schedule = "zb-h1", .ranks = 4, .optimistic = true})), one, "optimistic");
  const Outcome untied = train(with_shards({.tied = false}));
  expect_equal(train(with_shards({.schedule = "zb-v", .ranks = 2, .tied = false})), untied, "zb-v untied");
}

// Under two directions each rank has two stages and one arena; the embedding's ends lie on ranks 0 and p-1, shards of
// the head also on those between.
TEST(Trainer, ShardsOfTheHeadKeepTheContractInGroups) {
  const Outcome one = train(with_shards({.micro_batches = 8, .groups = 2}));
  for (const Partition& cut : {Partition{2, 2, 2, 2}, {4, 2, 1, 1}, {5, 1, 1, 1}}) {
    expect_equal(
        train(with_shards({.schedule = "dualpipe", .ranks = 4, .micro_batches = 8, .groups = 2, .partition = cut})),
        one, "dualpipe with " + std::to_string(cut[0]) + " units first");
  }
  expect_equal(train(with_shards({.schedule = "dualpipe", .ranks = 2, .micro_batches = 8, .groups = 2})), one,
               "dualpipe p=2");
  expect_equal(train(with_shards({.schedule = "1f1b", .ranks = 3, .replicas = 2, .micro_batches = 4})), one,
               "2 replicas");
  expect_equal(train(with_shards({.schedule = "zb-v", .ranks = 2, .micro_batches = 8, .groups = 2})), one,
               "zb-v, 2 groups");
}

TEST(Trainer, UntiedModelsKeepTheContract) {
  const Outcome one = train({.tied = false});
  EXPECT_NE(one.hash, train({}).hash);
  expect_equal(train({.schedule = "1f1b", .ranks = 4, .tied = false}), one, "1f1b p=4 untied");
  expect_equal(train({.schedule = "zb-v", .ranks = 2, .tied = false}), one, "zb-v p=2 untied");
}

TEST(Trainer, ReplicasAndDirectionsAreGroups) {
  const Outcome two_groups = train({.micro_batches = 8, .groups = 2});
  EXPECT_NE(two_groups.hash, train({.micro_batches = 8}).hash);
  expect_equal(train({.schedule = "1f1b", .ranks = 3, .micro_batches = 8, .groups = 2}), two_groups, "1f1b, 2 groups");
  expect_equal(train({.schedule = "zb-h1", .ranks = 3, .micro_batches = 8, .groups = 2}), two_groups,
               "zb-h1, 2 groups");
  expect_equal(train({.schedule = "1f1b", .ranks = 2, .replicas = 2, .micro_batches = 4}), two_groups, "2 replicas");
  expect_equal(train({.schedule = "dualpipe", .ranks = 2, .micro_batches = 8, .groups = 2}), two_groups,
               "dualpipe p=2");
  expect_equal(train({.schedule = "dualpipe", .ranks = 4, .micro_batches = 8, .groups = 2}), two_groups,
               "dualpipe p=4");
}

// The micro-batches of a step form the same tree of sums whoever adds them: one rank in groups, replicas, the
// directions of dualpipe. 3 micro-batches per replica: groups of 1 and of 2.
TEST(Trainer, GroupsOfTheWholeStepAreOneTreeForEveryNumberOfReplicas) {
  for (const int groups : {4, 8}) {
    for (const int step : {8, 12, 24}) {
      const std::string what = std::to_string(groups) + " groups of " + std::to_string(step) + ", ";
      const Outcome one = train({.micro_batches = step, .groups = groups});
      const auto expect = [&](TrainingRun run) {
        run.micro_batches = step / run.replicas;
        run.groups = groups;
        expect_equal(train(run), one, what + run.schedule + " d=" + std::to_string(run.replicas));
      };
      expect({.schedule = "zb-v", .ranks = 2});
      expect({.schedule = "1f1b", .ranks = 2, .replicas = 2});
      expect({.schedule = "breadth-first", .ranks = 2, .chunks = 2, .replicas = 4});
      if (groups == 8 && step == 8) expect({.replicas = 8});
      expect({.schedule = "dualpipe", .ranks = 2});
      if (step >= 8) expect({.schedule = "dualpipe", .ranks = 2, .replicas = 2});
    }
  }
}

// Any number of micro-batches is cut into groups at floor(M g / G).
TEST(Trainer, GroupsOfUnequalSizesAreOneTree) {
  for (const int step : {10, 14, 22}) {
    const Outcome one = train({.micro_batches = step, .groups = 8});
    expect_equal(train({.schedule = "zb-h1", .ranks = 3, .micro_batches = step, .groups = 8}), one, "zb-h1");
    expect_equal(train({.schedule = "interleaved", .ranks = 2, .replicas = 2, .micro_batches = step / 2, .groups = 8}),
                 one, "2 replicas of " + std::to_string(step / 2));
    expect_equal(train({.schedule = "dualpipe", .ranks = 2, .micro_batches = step, .groups = 8}), one, "dualpipe");
  }
}

// Replicas whose number is not a power of two are added in rank order, and no other run has their bits.
TEST(Trainer, ThreeReplicasAreThreeGroups) {
  const Outcome three = train({.replicas = 3, .micro_batches = 2});
  expect_equal(train({.schedule = "1f1b", .ranks = 2, .replicas = 3, .micro_batches = 2}), three, "1f1b");
  EXPECT_THROW(train({.replicas = 3, .micro_batches = 2, .groups = 6}), std::invalid_argument);
  EXPECT_THROW(train({.replicas = 2, .micro_batches = 2, .groups = 1}), std::invalid_argument);
  EXPECT_THROW(train({.micro_batches = 6, .groups = 3}), std::invalid_argument);
  EXPECT_THROW(train({.micro_batches = 2, .groups = 4}), std::invalid_argument);
}

TEST(Trainer, EveryFactorisationOfTheGlobalBatchTrainsAlike) {
  const Outcome whole = train({.micro_batches = 1, .rows = 16, .steps = 4});
  for (const auto& [m, rows] : {std::pair{2, 8}, {4, 4}, {8, 2}, {16, 1}}) {
    const Outcome cut = train({.schedule = "1f1b", .ranks = 2, .micro_batches = m, .rows = rows, .steps = 4});
    for (std::size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(cut.losses[i], whole.losses[i], 2e-6 * whole.losses[i]) << "m=" << m << " step " << i;
      EXPECT_NEAR(cut.norms[i], whole.norms[i], 2e-5 * whole.norms[i]) << "m=" << m << " step " << i;
    }
  }
}

TEST(Trainer, RandomDelaysChangeNoBits) {
  const Outcome one = train({.micro_batches = 8});
  const Outcome two_groups = train({.micro_batches = 8, .groups = 2});
  for (const char* schedule : {"1f1b", "interleaved", "zb-h2", "zb-v", "v-min"}) {
    expect_equal(
        train({.schedule = schedule, .ranks = 4, .micro_batches = 8}, {.message = 2, .receive = 1, .action = 1}), one,
        schedule);
  }
  expect_equal(train({.schedule = "dualpipe", .ranks = 4, .micro_batches = 8, .groups = 2},
                     {.message = 2, .receive = 1, .action = 1}),
               two_groups, "dualpipe");
}

TEST(Trainer, GeneratesTheSameTokensUnderEveryPlacement) {
  const auto tokens_of = [](TrainingRun run) {
    std::vector<std::int32_t> tokens;
    std::mutex mutex;
    run.after_training = [&](Trainer& trainer) {
      std::vector<std::int32_t> mine;
      trainer.generate({5, 7, 11}, 6, {.temperature = 0.8}, 3, [&](std::int32_t id) {
        mine.push_back(id);
        return true;
      });
      const std::lock_guard lock(mutex);
      if (tokens.empty()) tokens = mine;
      EXPECT_EQ(mine, tokens) << run.schedule;  // on every rank
    };
    train(run);
    return tokens;
  };
  const std::vector<std::int32_t> one = tokens_of({.micro_batches = 8});
  ASSERT_EQ(one.size(), 6U);
  for (const std::string& schedule : schedule_names()) {
    for (const int p : {2, 4}) {
      if (schedule == "dualpipe") continue;  // other groups, other parameters: below
      EXPECT_EQ(tokens_of({.schedule = schedule, .ranks = p, .micro_batches = 8}), one) << schedule << " p=" << p;
    }
  }
  const std::vector<std::int32_t> shards = tokens_of(with_shards({}));
  for (const int p : {2, 4, 8}) EXPECT_EQ(tokens_of(with_shards({.schedule = "1f1b", .ranks = p})), shards) << p;
  EXPECT_EQ(tokens_of(with_shards({.schedule = "zb-v", .ranks = 4})), shards);
  const std::vector<std::int32_t> two_groups = tokens_of({.micro_batches = 8, .groups = 2});
  EXPECT_EQ(tokens_of({.schedule = "dualpipe", .ranks = 4, .micro_batches = 8, .groups = 2}), two_groups);
}

// The text that is generated after training: ids, and the logits that each was drawn from, on the rank that has them.
struct Generated {
  std::vector<std::int32_t> ids;
  std::vector<float> logits;
};

Generated generated_by(TrainingRun run, const std::vector<std::int32_t>& prompt, std::int64_t count) {
  Generated all;
  std::mutex mutex;
  run.after_training = [&](Trainer& trainer) {
    Generated mine;
    for (int text = 0; text < 2; ++text) {  // nothing of the first may be left for the second
      trainer.generate(prompt, count, {.temperature = 0.8}, 3, [&](std::int32_t id) {
        mine.ids.push_back(id);
        const auto* logits = static_cast<const float*>(trainer.memory().next_logits());
        if (logits != nullptr) mine.logits.insert(mine.logits.end(), logits, logits + run.vocab);
        return true;
      });
    }
    const std::lock_guard lock(mutex);
    all.ids = mine.ids;
    if (!mine.logits.empty()) all.logits = mine.logits;
  };
  train(run);
  return all;
}

// 16 positions: texts that begin, fill them exactly, and go beyond them, where every position moves with every token.
TEST(Trainer, GenerationWithACacheHasTheBitsOfGenerationWithout) {
  const std::vector<std::int32_t> long_prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
  const auto expect_alike = [&](TrainingRun run, const std::string& what) {
    for (const auto& [prompt, count] :
         {std::pair{std::vector<std::int32_t>{5, 7, 11}, 25}, {long_prompt, 3}, {{0}, 1}}) {
      run.caches = false;
      const Generated without = generated_by(run, prompt, count);
      run.caches = true;
      const Generated with = generated_by(run, prompt, count);
      ASSERT_EQ(without.logits.size(), static_cast<std::size_t>(2 * count * run.vocab)) << what;
      EXPECT_EQ(with.ids, without.ids) << what;
      EXPECT_EQ(std::memcmp(with.logits.data(), without.logits.data(), without.logits.size() * sizeof(float)), 0)
          << what;
      EXPECT_EQ(with.logits.size(), without.logits.size()) << what;
    }
  };
  for (const int p : {1, 2, 3}) {
    expect_alike({.ranks = p, .micro_batches = 2, .rows = 2}, "gpipe p=" + std::to_string(p));
    expect_alike(with_shards({.schedule = "1f1b", .ranks = p, .micro_batches = 2}), "shards p=" + std::to_string(p));
  }
  expect_alike({.ranks = 2, .micro_batches = 2, .threads = 3, .tied = false}, "threads");
  expect_alike(with_shards({.schedule = "zb-v", .ranks = 2, .replicas = 2}), "zb-v, 2 replicas");
  expect_alike({.schedule = "dualpipe", .ranks = 4, .micro_batches = 8, .groups = 2}, "dualpipe");
  expect_alike({.schedule = "interleaved", .ranks = 2, .micro_batches = 4}, "interleaved");
}

// Copies of a parameter are compared with their owner's at every hash (Trainer::parameter_hash).
TEST(Trainer, CopiesStayIdenticalForManySteps) {
  const auto steps_of = [](TrainingRun run) {
    run.micro_batches *= 4;
    run.steps = 20;
    run.hash_every_step = true;
    return train(run);
  };
  const Outcome one = steps_of({.micro_batches = 2, .groups = 2});
  ASSERT_EQ(one.hashes.size(), 20U);
  EXPECT_EQ(steps_of({.schedule = "dualpipe", .ranks = 2, .micro_batches = 2, .groups = 2}).hashes, one.hashes);
  EXPECT_EQ(steps_of({.schedule = "dualpipe", .ranks = 4, .micro_batches = 2, .groups = 2}).hashes, one.hashes);
  EXPECT_EQ(steps_of({.schedule = "zb-v", .ranks = 2, .replicas = 2, .micro_batches = 1}).hashes, one.hashes);
}

TEST(Trainer, NoticesCopiesThatDrift) {
  const auto expect_notice = [](TrainingRun run, int drifting_rank, const std::string& tensor) {
    run.before_training = [=](Trainer& trainer) {
      if (trainer.memory().plan().rank != drifting_rank) return;
      const ArenaLayout& layout = trainer.memory().plan().layout;
      const auto entry = std::ranges::find_if(layout.entries, [&](const auto& one) { return one.info.name == tensor; });
      ASSERT_NE(entry, layout.entries.end()) << tensor;
      trainer.memory().parameters()[entry->offset] += 0.5F;
    };
    try {
      train(run);
      ADD_FAILURE() << run.schedule << ": not noticed";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(drifting_rank) + " holds another " + tensor),
                std::string::npos)
          << error.what();
    }
  };
  expect_notice({.schedule = "dualpipe", .ranks = 4, .micro_batches = 8, .groups = 2}, 3, "wte");
  expect_notice({.schedule = "dualpipe", .ranks = 4, .micro_batches = 8, .groups = 2}, 2, "h1.ln1w");
  expect_notice({.schedule = "1f1b", .ranks = 4}, 3, "wte");
  expect_notice(with_shards({.schedule = "1f1b", .ranks = 8}), 6, "wte.1");
}

}  // namespace
}  // namespace train_gpt::test
