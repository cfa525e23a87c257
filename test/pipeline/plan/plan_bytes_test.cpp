// The exact memory plan: planned bytes are the bytes that a rank allocates, and the bytes that it uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "pipeline/plan/plan_bytes.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/train/trainer.h"
#include "test/counted_allocations.h"
#include "test/model/temporary_folder.h"
#include "test/pipeline/plan/watched_device.h"
#include "test/pipeline/train/training_runs.h"

namespace train_gpt::test {
namespace {

using TrainingRun = train_gpt::test::Run;

bool has_mlp(const RankPlan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& stage) {
    for (int u = stage.shape.first_unit; u < stage.shape.last_unit; ++u) {
      if (unit_kind(stage.shape.model, u) == UnitKind::mlp) return true;
    }
    return false;
  });
}

// From step to step.
bool lasts(MemoryUse use) {
  return use == MemoryUse::parameters || use == MemoryUse::gradients || use == MemoryUse::group_gradients ||
         use == MemoryUse::first_moment || use == MemoryUse::second_moment || use == MemoryUse::gradient_shards ||
         use == MemoryUse::working_parameters;
}

constexpr std::int64_t kFloat = sizeof(float);

// Elements of its sections that a replica has in its pieces, or, where it is -1, of the largest piece of each.
template <class Has>
std::int64_t piece_elements(const RankPlan& plan, int replica, const Has& has) {
  std::int64_t elements = 0;
  for (const Section& section : plan.sections) {
    if (!has(section)) continue;
    std::int64_t piece = 0;
    for (std::size_t k = 0; k + 1 < section.cuts.size(); ++k) {
      if (replica < 0 || replica == static_cast<int>(k)) {
        piece = std::max(piece, section.cuts[k + 1] - section.cuts[k]);
      }
    }
    elements += piece;
  }
  return elements;
}

// Elements that some section has in these windows: between two of them there may be a gap.
template <class Has>
std::int64_t window_elements(const RankPlan& plan, const Windows& windows, const Has& has) {
  std::vector<bool> taken(static_cast<std::size_t>(windows.elements), false);
  for (std::size_t s = 0; s < plan.sections.size(); ++s) {
    const auto begin = taken.begin() + windows.offsets[s];
    if (has(plan.sections[s])) std::fill(begin, begin + plan.sections[s].elements, true);
  }
  return std::ranges::count(taken, true);
}

// Bytes of a line that a replica uses under --zero, where that may not be all of it: the largest piece of a section is
// that of one replica, and windows may leave gaps. Replica -1: as if it had the largest piece of each.
std::optional<std::int64_t> used_by_replica(const PlanRequest& request, const RankPlan& plan, MemoryUse use,
                                            int replica) {
  if (request.zero == 0) return std::nullopt;
  const auto every = [](const Section&) { return true; };
  const auto has_parameters = [](const Section& section) { return section.has_parameters; };
  const auto has_second_moment = [](const Section& section) {
    return section.has_parameters && section.kind != Section::Kind::matrices;
  };
  switch (use) {
    case MemoryUse::first_moment:
      return piece_elements(plan, replica, has_parameters) * kFloat;
    case MemoryUse::second_moment:
      return piece_elements(plan, replica, has_second_moment) * kFloat;
    case MemoryUse::gradient_shards:
      return piece_elements(plan, replica, every) * kFloat;
    case MemoryUse::parameters:
      if (!plan.parameter_windows) return std::nullopt;
      return piece_elements(plan, replica, has_parameters) * kFloat;
    case MemoryUse::working_parameters:
      if (!plan.parameter_windows) return std::nullopt;
      return window_elements(plan, *plan.parameter_windows, has_parameters) * kFloat;
    case MemoryUse::gradients:
      if (!plan.gradient_windows) return std::nullopt;
      return window_elements(plan, *plan.gradient_windows, every) * kFloat;
    case MemoryUse::group_gradients:
      if (!plan.gradient_windows) return std::nullopt;
      return request.pending_sums() * window_elements(plan, *plan.gradient_windows, every) * kFloat;
    default:
      return std::nullopt;
  }
}

bool in_windows(const RankPlan& plan, MemoryUse use) {
  if (use == MemoryUse::working_parameters) return plan.parameter_windows.has_value();
  const bool of_gradients = use == MemoryUse::gradients || use == MemoryUse::group_gradients;
  return of_gradients && plan.gradient_windows.has_value();
}

// Adds to `run` that every rank compares its plan with what it allocated and used.
TrainingRun watched(TrainingRun run, const std::string& what) {
  static thread_local WatchedDevice* device = nullptr;  // of the rank that runs on this thread
  const int threads = run.threads;
  run.make_device = [threads] {
    auto made = std::make_unique<WatchedDevice>(threads);
    device = made.get();
    return made;
  };
  run.before_training = [what](Trainer& trainer) {
    const RankPlan& plan = trainer.memory().plan();
    device->begin_training();
    EXPECT_EQ(device->allocated(), plan.total_bytes()) << what;
    // Writes of the dry run before the first step do not count, where nothing is left for the steps.
    for (std::size_t i = 0; i < plan.memory.size(); ++i) {
      if (!lasts(plan.memory[i].use)) WatchedDevice::mark_unused(device->blocks()[i]);
    }
  };
  run.after_training = [what, threads](Trainer& trainer) {
    trainer.generate(std::vector<std::int32_t>(16, 1), 1, {.temperature = 0}, 1, [](std::int32_t) { return true; });
    const PlanRequest& request = trainer.plan().request;
    const RankPlan& plan = trainer.memory().plan();
    EXPECT_EQ(device->allocated(), plan.total_bytes()) << what << ": allocated during a step";
    ASSERT_EQ(device->blocks().size(), plan.memory.size()) << what;
    for (std::size_t i = 0; i < plan.memory.size(); ++i) {
      const WatchedDevice::Block& block = device->blocks()[i];
      // The operations' own workspace serves the largest of them, which not every rank has. All replicas have the plan
      // of the first, which alone sums squares.
      if (plan.memory[i].use == MemoryUse::workspace && !has_mlp(plan)) continue;
      if (plan.memory[i].use == MemoryUse::norms && request.batch.replicas > 1) continue;
      // Muon's scratch serves the largest matrix of the rank, which is updated by one of the replicas.
      if (plan.memory[i].use == MemoryUse::scratch && request.optimizer == OptimizerKind::muon && request.zero > 0)
        continue;
      if (plan.memory[i].use == MemoryUse::workspace) WatchedDevice::mark_panels_used(block, threads);
      const std::int64_t planned = plan.memory[i].bytes;
      const MemoryUse use = plan.memory[i].use;
      const std::int64_t of_largest_pieces = used_by_replica(request, plan, use, -1).value_or(planned);
      if (!in_windows(plan, use)) {
        EXPECT_EQ(of_largest_pieces, planned) << what << ", " << plan.memory[i].name;
      }
      EXPECT_LE(of_largest_pieces, planned) << what << ", " << plan.memory[i].name;
      EXPECT_EQ(WatchedDevice::used(block), used_by_replica(request, plan, use, trainer.replica()).value_or(planned))
          << what << ", rank " << plan.rank << ", " << plan.memory[i].name << ": nothing was ever written to byte "
          << WatchedDevice::first_unused(block);
    }
  };
  return run;
}

std::string describe(const TrainingRun& run) {
  return run.schedule + " p=" + std::to_string(run.ranks) + " m=" + std::to_string(run.micro_batches);
}

// With these sizes every tensor fills whole lines.
TrainingRun run_of(const std::string& schedule, int p, int m) {
  TrainingRun run{
      .schedule = schedule, .ranks = p, .micro_batches = m, .steps = 2, .validate_every = 2, .heads = 2, .hidden = 128};
  const Placement placement = make_schedule({.name = schedule, .ranks = p, .micro_batches = m}).placement;
  if (placement.depth() > 8) run.layers = 11;
  return run;
}

TEST(Memory, PlannedIsAllocatedIsUsedUnderEverySchedule) {
  using Case = std::pair<int, int>;
  for (const std::string& name : schedule_names()) {
    for (const auto& [p, m] : {Case{1, 3}, {2, 1}, {2, 8}, {3, 3}, {4, 3}, {4, 8}, {6, 16}, {8, 3}, {8, 16}}) {
      if (violation({.name = name, .ranks = p, .micro_batches = m})) continue;
      const TrainingRun run = run_of(name, p, m);
      train(watched(run, describe(run)));
    }
  }
}

TEST(Memory, PlannedIsAllocatedIsUsedWithoutAFlush) {
  using Case = std::pair<int, int>;
  for (const auto& [p, m] : {Case{1, 1}, {1, 3}, {2, 1}, {2, 4}, {3, 3}, {4, 3}, {4, 8}}) {
    const auto expect_exact = [&, p = p, m = m](const std::string& mode,
                                                const std::function<void(TrainingRun&)>& change) {
      TrainingRun run{.schedule = "2bw",
                      .ranks = p,
                      .micro_batches = m,
                      .steps = 4,
                      .validate_every = 2,
                      .heads = 2,
                      .hidden = 128};
      change(run);
      train(watched(run, describe(run) + ", " + mode));
    };
    expect_exact("as it is", [](TrainingRun&) {});
    expect_exact("corrected", [](TrainingRun& run) { run.error_feedback = true; });
    expect_exact("one buffer of gradients", [](TrainingRun& run) {
      run.tied = false;
      run.grad_clip = 0;
      run.gradient_buffers = 1;
    });
    if (m >= 2 * (p - 1)) expect_exact("twice as far ahead", [](TrainingRun& run) { run.warmup_factor = 2; });
    expect_exact("an update after every backward", [](TrainingRun& run) {
      run.schedule = "pipedream";
      run.tied = false;
      run.grad_clip = 0;
    });
  }
}

TEST(Memory, PlannedIsAllocatedIsUsedInEveryMode) {
  for (const char* schedule : {"1f1b", "zb-h2", "interleaved-zb", "zb-v", "dualpipe"}) {
    for (const int p : {2, 4}) {
      const auto expect_exact = [&](const std::string& mode, const std::function<void(TrainingRun&)>& change) {
        TrainingRun run = run_of(schedule, p, 8);
        change(run);
        train(watched(run, describe(run) + ", " + mode));
      };
      const auto units = static_cast<std::size_t>(2 * run_of(schedule, p, 8).layers + 2);
      std::vector<bool> every_third(units, false);
      for (std::size_t u = 0; u < units; u += 3) every_third[u] = true;
      expect_exact("stored head", [](TrainingRun& run) { run.head = HeadForm::stored; });
      expect_exact("recomputed", [&](TrainingRun& run) { run.recompute.assign(units, true); });
      expect_exact("partly recomputed", [&](TrainingRun& run) { run.recompute = every_third; });
      expect_exact("untied", [](TrainingRun& run) { run.tied = false; });
      const auto with_shards = [](TrainingRun& run) { run.vocab = 2300; };  // two of them
      expect_exact("shards", with_shards);
      expect_exact("shards of a stored head", [&](TrainingRun& run) {
        with_shards(run);
        run.head = HeadForm::stored;
      });
      expect_exact("recomputed shards", [&](TrainingRun& run) {
        with_shards(run);
        run.recompute.assign(units + 1, true);
      });
      expect_exact("optimistic", [](TrainingRun& run) { run.optimistic = true; });
      expect_exact("muon", [](TrainingRun& run) { run.optimizer = OptimizerKind::muon; });
      expect_exact("keys and values", [](TrainingRun& run) { run.caches = true; });
      expect_exact("eight groups", [](TrainingRun& run) { run.groups = 8; });
      expect_exact("two replicas", [](TrainingRun& run) { run.replicas = 2; });
      for (const int zero : {1, 2, 3}) {
        const auto with_pieces = [zero](TrainingRun& run) {
          run.replicas = 2;
          run.zero = zero;
        };
        expect_exact("shards of two replicas, " + std::to_string(zero), with_pieces);
        expect_exact("shards of two replicas, muon, " + std::to_string(zero), [&](TrainingRun& run) {
          with_pieces(run);
          run.optimizer = OptimizerKind::muon;
        });
      }
    }
  }
}

// A stage per unit, so that parameters and gradients are whole in windows alone.
TEST(Memory, PlannedIsAllocatedIsUsedInWindows) {
  for (const int ranks : {1, 2}) {
    for (const int replicas : {2, 3, 4}) {
      for (const int zero : {1, 2, 3}) {
        for (const bool groups : {false, true}) {
          if (groups && replicas == 3) continue;  // added in rank order
          TrainingRun run = run_of("breadth-first", ranks, 4);
          run.layers = 11;
          run.chunks = 24 / ranks;
          run.replicas = replicas;
          run.zero = zero;
          if (groups) run.groups = 4 * replicas;  // two sums wait for a third
          const std::string what = describe(run) + " d=" + std::to_string(replicas) + " zero=" + std::to_string(zero);
          run = watched(run, what);
          run.before_training = [zero, before = run.before_training](Trainer& trainer) {
            EXPECT_EQ(trainer.memory().plan().gradient_windows.has_value(), zero >= 2);
            EXPECT_EQ(trainer.memory().plan().parameter_windows.has_value(), zero >= 3);
            before(trainer);
          };
          train(run);
        }
      }
    }
  }
}

TEST(Memory, OfARunThatResumesIsTheSame) {
  const TemporaryFolder folder;
  TrainingRun first = run_of("1f1b", 2, 8);
  first.stop_after = 1;
  first.save_to = folder.file(".");
  train(watched(first, "before the break"));
  TrainingRun second = run_of("zb-v", 2, 8);
  second.first_step = 1;
  second.resume_from = folder.file(".");
  train(watched(second, "resumed"));
}

TEST(Memory, NothingIsAllocatedInAStep) {
  for (const char* schedule : {"gpipe", "zb-h2", "zb-v", "interleaved"}) {
    for (const bool optimistic : {false, true}) {
      std::vector<std::int64_t> before;  // every step's end
      before.reserve(20);
      TrainingRun run{.schedule = schedule, .groups = optimistic ? 1 : 2, .steps = 20, .optimistic = optimistic};
      train(run, {}, [&](std::int64_t) { before.push_back(allocations_of_this_thread()); });
      for (std::size_t step = 2; step < before.size(); ++step) {
        EXPECT_EQ(before[step], before[step - 1]) << schedule << ", step " << step;
      }
    }
  }
}

Plan plan_of(const std::string& schedule, int p, int m) {
  const ModelConfig model{.layers = 11, .heads = 2, .hidden = 128, .vocab = 131, .max_seq_len = 16};
  PlanRequest request;
  request.model = model;
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = m};
  request.schedule = make_schedule({.name = schedule, .ranks = p, .micro_batches = m});
  if (request.schedule.placement.kind == Placement::Kind::bidirectional) request.batch.groups = 2;
  request.partition = uniform_partition(model, request.schedule.placement.depth());
  return make_plan(request);
}

TEST(Memory, FirstStageHoldsWhatTheScheduleSays) {
  for (const auto& [schedule, slots] :
       std::vector<std::pair<std::string, int>>{{"gpipe", 8}, {"1f1b", 4}, {"zb-h1", 4}, {"zb-h2", 7}}) {
    const Plan plan = plan_of(schedule, /*p=*/4, /*m=*/8);
    const RankPlan& rank = plan.ranks[0];
    EXPECT_EQ(rank.live_micro_batches, slots) << schedule;
    const auto forward_to_weight = std::find_if(rank.pools.begin(), rank.pools.end(), [](const Pool& pool) {
      return pool.lifetime == Lifetime::forward_to_weight;
    });
    ASSERT_NE(forward_to_weight, rank.pools.end());
    EXPECT_EQ(forward_to_weight->slots, slots) << schedule;
    EXPECT_NE(memory_table(plan).find(" (" + std::to_string(slots) + ")"), std::string::npos) << memory_table(plan);
  }
}

// Tokens, targets and losses of the step are there whatever the schedule; the rest grows under two schedules alone.
TEST(Memory, GrowsWithMicroBatchesOnlyWhereTheScheduleSaysSo) {
  for (const std::string& schedule : schedule_names()) {
    for (const int p : {2, 4, 8}) {
      const bool keeps_all = schedule == "gpipe" || schedule == "breadth-first";
      const Plan few = plan_of(schedule, p, 4 * p), many = plan_of(schedule, p, 16 * p);
      for (std::size_t r = 0; r < few.ranks.size(); ++r) {
        const auto bytes = [&](const Plan& plan) {
          return plan.ranks[r].total_bytes() - plan.ranks[r].bytes_of(MemoryUse::tokens);
        };
        if (keeps_all) {
          EXPECT_GT(bytes(many), bytes(few)) << schedule << " p=" << p << " rank " << r;
        } else {
          EXPECT_EQ(bytes(many), bytes(few)) << schedule << " p=" << p << " rank " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace train_gpt::test
