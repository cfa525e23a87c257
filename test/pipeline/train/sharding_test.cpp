// Sharded data parallelism: the bits of one rank that adds up the same groups of micro-batches, the plan's bytes, and
// what is reduced when.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "pipeline/plan/lowering.h"
#include "pipeline/plan/shards.h"
#include "pipeline/plan/windows.h"
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

// One micro-batch after the other through units that are gathered for each: what takes part is whole at the right time
// in whatever order messages arrive.
TEST(Sharding, WindowsHoldUnderDelays) {
  TrainingRun run{.schedule = "breadth-first", .ranks = 2, .chunks = 4, .replicas = 2, .micro_batches = 3};
  run.validate_every = 1;
  const Outcome expected = train(run);
  run.zero = 3;
  for (int seed = 0; seed < 3; ++seed) {
    expect_equal(train(run, {.message = 1, .receive = 1, .action = 0.5 + seed}), expected, std::to_string(seed));
  }
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

PlanRequest request_of(const std::string& schedule, int p, int d, int zero, int chunks = 0) {
  const ModelConfig model{.layers = 11, .heads = 2, .hidden = 128, .vocab = 131, .max_seq_len = 16};
  PlanRequest request;
  request.model = model;
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = 8, .replicas = d, .groups = d};
  request.schedule = make_schedule({.name = schedule, .ranks = p, .micro_batches = 8, .chunks = chunks});
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

// ---- windows --------------------------------------------------------------------------------------------------------

struct Block {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool overlaps(const Block& other) const { return begin < other.end && other.begin < end; }
};

Block block_of(const RankPlan& rank, const Windows& windows, std::size_t section) {
  return {windows.offsets[section], windows.offsets[section] + rank.sections[section].elements};
}

bool reads(const RankPlan& rank, const Section& section, const Action& action) {
  const bool tied_head = section.kind == Section::Kind::embedding && rank.stage_plan(action.stage).shape.has_shards();
  return section.has_parameters && (action.stage == section.stage || tied_head);
}

// Walks through a list: from a gather's issue to its end a place belongs to one section, and an action finds what it
// reads.
void expect_whole_when_read(const RankPlan& rank, const std::vector<Action>& list,
                            const std::vector<Gathering>& gatherings) {
  const ParameterWindows& windows = *rank.parameter_windows;
  for (std::size_t at = 0; at < list.size(); ++at) {
    std::vector<std::size_t> there, whole;
    for (const Gathering& one : gatherings) {
      const auto section = static_cast<std::size_t>(one.section);
      if (one.after <= at && at < one.until) there.push_back(section);
      if (one.before <= at && at < one.until) whole.push_back(section);
    }
    for (std::size_t a = 0; a < there.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        EXPECT_FALSE(block_of(rank, windows, there[a]).overlaps(block_of(rank, windows, there[b])))
            << to_string(list[at]);
      }
    }
    for (std::size_t s = 0; s < rank.sections.size(); ++s) {
      if (!reads(rank, rank.sections[s], list[at])) continue;
      EXPECT_EQ(std::ranges::count(whole, s), 1) << to_string(list[at]) << " section " << s;
    }
  }
}

TEST(Windows, ParametersAreWholeWhenTheyAreRead) {
  int with_windows = 0;
  for (const auto& [schedule, p, v] :
       {std::tuple{"breadth-first", 1, 24}, std::tuple{"breadth-first", 2, 8}, std::tuple{"interleaved", 2, 8},
        std::tuple{"interleaved-zb", 3, 4}, std::tuple{"zb-v", 2, 0}, std::tuple{"1f1b", 3, 0}}) {
    PlanRequest request = request_of(schedule, p, 4, 3, v);
    request.precision = Precision::bf16;  // with working parameters of their own windows always pay
    const Plan plan = make_plan(request);
    for (const RankPlan& rank : plan.ranks) {
      ASSERT_TRUE(rank.parameter_windows) << schedule;
      ++with_windows;
      expect_whole_when_read(rank, plan.request.schedule.actions(rank.rank), rank.parameter_windows->training);
      expect_whole_when_read(rank, plan.validation.actions(rank.rank), rank.parameter_windows->validation);
      expect_whole_when_read(rank, plan.generation.actions(rank.rank), rank.parameter_windows->generation);
    }
  }
  EXPECT_EQ(with_windows, 13);
}

// A rank that computes one unit after the other has two of them whole: the one that computes, and the next.
TEST(Windows, OfUnitsTakeTwo) {
  const Plan plan = make_plan(request_of("breadth-first", 1, 4, 3, 24));
  const RankPlan& rank = plan.ranks[0];
  std::vector<std::int64_t> units(24, 0);  // with the tied embedding's wte in the first
  for (const Section& section : rank.sections) {
    if (section.has_parameters) units[static_cast<std::size_t>(section.stage)] += section.elements;
  }
  std::int64_t most = 0;
  for (std::size_t u = 0; u + 1 < units.size(); ++u) most = std::max(most, units[u] + units[u + 1]);
  ASSERT_TRUE(rank.parameter_windows);
  EXPECT_TRUE(rank.parameter_windows->per_use);
  // The tied embedding is read at both ends of the model: its place is one that the units at both leave free.
  EXPECT_LE(rank.parameter_windows->elements, most + units[0]);
  ASSERT_TRUE(rank.gradient_windows);
  EXPECT_LE(rank.gradient_windows->elements, most + units[0]);
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t atoms = static_cast<std::int64_t>(rank.sections.size()) * kAtomElements;
  EXPECT_LE(rank.bytes_of(MemoryUse::parameters), (rank.layout.elements / 4 + atoms) * kFloat);
  EXPECT_LE(rank.bytes_of(MemoryUse::gradient_shards), (rank.layout.gradient_elements / 4 + atoms) * kFloat);
}

// 1F1B has a stage's first W at its beginning and the last at its end: all is whole all the time.
TEST(Windows, AreNoneWhereNothingIsGained) {
  for (const char* schedule : {"1f1b", "zb-v", "dualpipe"}) {
    for (const int zero : {2, 3}) {
      const Plan plan = make_plan(request_of(schedule, 2, 2, zero));
      const Plan plain = make_plan(request_of(schedule, 2, 2, 1));
      for (std::size_t r = 0; r < 2; ++r) {
        EXPECT_FALSE(plan.ranks[r].gradient_windows) << schedule;
        EXPECT_EQ(plan.ranks[r].bytes_of(MemoryUse::gradients), plain.ranks[r].bytes_of(MemoryUse::gradients));
        EXPECT_LE(plan.ranks[r].total_bytes(), plain.ranks[r].total_bytes()) << schedule;
      }
    }
  }
}

// Gathered once where the limit allows it.
TEST(Windows, TheLimitDecidesHowOftenIsGathered) {
  PlanRequest request = request_of("breadth-first", 1, 4, 3, 24);
  request.precision = Precision::bf16;  // with working parameters of their own even what is gathered once pays
  const RankPlan often = make_plan(request).ranks[0];
  ASSERT_TRUE(often.parameter_windows && often.parameter_windows->per_use);
  request.memory_limit = std::int64_t{1} << 40;
  const RankPlan once = make_plan(request).ranks[0];
  ASSERT_TRUE(once.parameter_windows);
  EXPECT_FALSE(once.parameter_windows->per_use);
  EXPECT_GT(once.total_bytes(), often.total_bytes());
  request.memory_limit = once.total_bytes() - 1;
  EXPECT_TRUE(make_plan(request).ranks[0].parameter_windows->per_use);
}

// No reduction is awaited later than where its place is used again, and places that are used at once differ.
TEST(Windows, GradientsAreReducedBeforeTheirPlaceIsUsedAgain) {
  for (const auto& [schedule, p, v] :
       {std::tuple{"breadth-first", 1, 24}, std::tuple{"breadth-first", 2, 8}, std::tuple{"breadth-first", 3, 4}}) {
    const Plan plan = make_plan(request_of(schedule, p, 4, 2, v));
    for (const RankPlan& rank : plan.ranks) {
      ASSERT_TRUE(rank.gradient_windows) << schedule << p;
      const GradientWindows& windows = *rank.gradient_windows;
      const std::vector<Action>& list = plan.request.schedule.actions(rank.rank);
      std::vector<int> holder(static_cast<std::size_t>(windows.elements / 128), -1);
      std::vector<std::size_t> free_from(rank.sections.size(), list.size());
      for (const LoweredAction& action : lower(plan, rank.rank)) {
        if (action.kind != LoweredAction::Kind::reduce_replicas) continue;
        EXPECT_GE(action.before, action.after);
        free_from[static_cast<std::size_t>(action.section)] = action.before;
      }
      for (std::size_t at = 0; at < list.size(); ++at) {
        for (std::size_t s = 0; s < rank.sections.size(); ++s) {
          const bool streams = rank.stage_plan(list[at].stage).shape.streams_head();
          if (rank.sections[s].stage != list[at].stage || (list[at].op == Op::forward && !streams)) continue;
          const Block block = block_of(rank, windows, s);
          for (std::int64_t i = block.begin / 128; i < block.end / 128; ++i) {
            int& one = holder[static_cast<std::size_t>(i)];
            if (one >= 0 && one != static_cast<int>(s)) {
              EXPECT_LE(free_from[static_cast<std::size_t>(one)], at) << to_string(list[at]);
            }
            one = static_cast<int>(s);
          }
        }
      }
    }
  }
}

TEST(Windows, BlocksThatMeetDoNotOverlap) {
  const std::vector<std::vector<bool>> chain = {
      {false, true, false, false}, {true, false, true, false}, {false, true, false, true}, {false, false, true, false}};
  EXPECT_EQ(places_of({4, 8, 4, 8}, chain), (std::vector<std::int64_t>{0, 4, 0, 4}));
  EXPECT_EQ(places_of({4, 4, 8, 4}, chain), (std::vector<std::int64_t>{0, 8, 0, 8}));  // the largest first
  const std::vector<std::vector<bool>> all(3, std::vector<bool>(3, true));
  EXPECT_EQ(places_of({1, 2, 3}, all), (std::vector<std::int64_t>{0, 1, 3}));
}

}  // namespace
}  // namespace train_gpt::test
