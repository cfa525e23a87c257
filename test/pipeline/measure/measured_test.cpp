// Measured steps of real training runs: what is recorded, analysed, drawn and traced. Nothing here depends on how long
// anything takes, only on what must follow what.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/local_communicator.h"
#include "pipeline/measure/measured_timeline.h"
#include "pipeline/measure/step_analysis.h"
#include "pipeline/measure/trace.h"
#include "pipeline/plan/lowering.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/channels.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kSeqLen = 8;
constexpr int kSteps = 5;
constexpr std::size_t kKept = 3;

struct Measured {
  Plan plan;
  std::vector<MeasuredStep> steps;
};

Measured measure(const std::string& name, int ranks, int micro_batches, double clock_ahead = 0) {
  const ModelConfig model{.layers = 3, .heads = 2, .hidden = 16, .vocab = 60, .max_seq_len = kSeqLen, .tied = true};
  PlanRequest request;
  request.model = model;
  request.batch = {.rows = 1, .seq_len = kSeqLen, .micro_batches = micro_batches};
  request.schedule = make_schedule({.name = name, .ranks = ranks, .micro_batches = micro_batches});
  request.batch.groups = request.schedule.placement.kind == Placement::Kind::bidirectional ? 2 : 1;
  request.partition = uniform_partition(model, request.schedule.placement.depth());
  request.workspace_bytes =
      make_cpu_device(1)->workspace_bytes(1, kSeqLen, model.hidden, model.heads, model.padded_vocab());
  Measured result{.plan = make_plan(request), .steps = {}};
  const OptimizerSettings optimizer{.learning_rate = {.peak = 1e-3, .steps = kSteps}, .adamw = {}, .grad_clip = 1};
  const ReadRow row = [](std::int32_t* out, std::int64_t r) {
    for (std::int64_t t = 0; t < kSeqLen; ++t) out[t] = static_cast<std::int32_t>((7 * r + 3 * t) % 60);
  };
  run_local_ranks(ranks, [&](Communicator& world) {
    const auto device = make_cpu_device(1);
    Groups groups = make_groups(world, make_layout(ranks, 1), result.plan);
    Trainer trainer(*device, groups, result.plan, optimizer);
    trainer.open();
    trainer.set_clock_ahead(clock_ahead);
    trainer.initialise(7);
    StepRecords records(result.plan.ranks[static_cast<std::size_t>(world.rank())].actions.size(),
                        trainer.lowered().size(), kKept);
    const double* memory = nullptr;
    Batch batch;
    for (int step = 0; step < kSteps; ++step) {
      trainer.read_batch(batch, row, row);
      const StepResult taken = trainer.step(step, batch);
      const RankTimes& own = taken.times[static_cast<std::size_t>(world.rank())];
      EXPECT_GE(taken.ms, own.last_end - own.first_start) << "both in milliseconds";
      records.keep(step, *device, trainer);
      if (step == 0) memory = records.numbers().data();
      EXPECT_EQ(records.numbers().data(), memory) << "records must not move or grow";
    }
    std::vector<MeasuredStep> steps = gather_steps(groups, result.plan, records);
    if (world.rank() == 0) result.steps = std::move(steps);
  });
  return result;
}

struct Case {
  std::string name;
  int ranks;
  int micro_batches;
};
const std::vector<Case> kCases = {{"1f1b", 1, 2},  {"1f1b", 4, 6}, {"interleaved", 2, 4},
                                  {"zb-h1", 3, 4}, {"zb-v", 2, 4}, {"dualpipe", 2, 4}};

std::string name_of(const Case& it) { return it.name + " p=" + std::to_string(it.ranks); }

TEST(Measured, KeepsTheLastStepsOfEveryRankInOrder) {
  for (const Case& it : kCases) {
    const Measured run = measure(it.name, it.ranks, it.micro_batches);
    ASSERT_EQ(run.steps.size(), kKept) << name_of(it);
    double before = 0;
    for (std::size_t s = 0; s < kKept; ++s) {
      const MeasuredStep& step = run.steps[s];
      EXPECT_EQ(step.step, kSteps - static_cast<int>(kKept) + static_cast<int>(s));
      EXPECT_GT(step.first_start(), before) << "the clock runs on from step to step";
      before = step.last_end();
      ASSERT_EQ(step.ranks.size(), static_cast<std::size_t>(it.ranks));
      for (int r = 0; r < it.ranks; ++r) {
        const MeasuredRank& rank = step.ranks[static_cast<std::size_t>(r)];
        ASSERT_EQ(rank.actions.size(), run.plan.request.schedule.actions(r).size());
        double clock = 0;
        for (const MeasuredAction& action : rank.actions) {
          EXPECT_LE(clock, action.wait_begin);
          EXPECT_LE(action.wait_begin, action.begin);
          EXPECT_LT(action.begin, action.end);
          clock = action.end;
        }
        const std::vector<LoweredAction> lowered = lower(run.plan, r);
        ASSERT_EQ(rank.lowered.size(), lowered.size());
        for (std::size_t i = 0; i < lowered.size(); ++i) {
          const MeasuredLowered& what = rank.lowered[i];
          EXPECT_EQ(what.letter, letter(lowered[i].kind));
          EXPECT_LE(what.issued, what.begin);
          EXPECT_LE(what.begin, what.end);
          // Not before the actions that it follows.
          EXPECT_GE(what.issued, rank.actions[lowered[i].after - 1].end);
        }
        EXPECT_EQ(rank.lowered.back().letter, 'U');
        EXPECT_GE(rank.lowered.back().begin, step.last_end()) << "nobody updates before everybody knows the norm";
      }
    }
  }
}

TEST(Measured, TimesAreThoseOfTheClockOfRankZero) {
  constexpr double kHour = 3.6e6;
  const auto device = make_cpu_device(1);
  const double before = device->time_ms(device->mark());
  const Measured run = measure("1f1b", 1, 2, /*clock_ahead=*/kHour);
  EXPECT_GE(run.steps[0].first_start(), before - kHour);
  EXPECT_LE(run.steps[0].first_start(), device->time_ms(device->mark()) - kHour);
}

TEST(Measured, IdlePartsSumToTheIdleTimeAndWorkAfterTheFlushIsApart) {
  for (const Case& it : kCases) {
    const Measured run = measure(it.name, it.ranks, it.micro_batches);
    const Schedule& schedule = run.plan.request.schedule;
    const Simulation predicted = simulate(schedule, Costs{});
    const MeasuredStep& step = median_step(run.steps);
    const StepAnalysis analysis = analyse(schedule, step, predicted);
    double idle = 0;
    for (std::size_t r = 0; r < analysis.ranks.size(); ++r) {
      const RankAnalysis& rank = analysis.ranks[r];
      EXPECT_NEAR(rank.parts.sum(), step.last_end() - step.first_start() - rank.busy, 1e-9) << name_of(it);
      EXPECT_NEAR(rank.parts.sum(), rank.idle, 1e-9);
      EXPECT_LE(rank.waiting, rank.idle + 1e-9);
      EXPECT_GT(rank.update, 0);
      EXPECT_GE(rank.post_flush, rank.update) << "U lies after the last action of all ranks";
      idle += rank.idle;
    }
    EXPECT_NEAR(idle / analysis.idle.available, analysis.measured.bubble, 1e-9) << name_of(it);
    EXPECT_EQ(analysis.predicted.makespan, predicted.makespan);
    const std::string table = analysis_table(analysis, 8);
    EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), it.ranks + 2) << table;
  }
}

TEST(Measured, TheMedianStepIsAStepInTheMiddle) {
  std::vector<MeasuredStep> steps;
  for (const double makespan : {5.0, 90.0, 6.0, 4.0, 7.0}) {
    const auto number = static_cast<std::int64_t>(steps.size());
    steps.push_back({.step = number, .ranks = {{.actions = {{0, 1, 1 + makespan}}, .lowered = {}}}});
  }
  EXPECT_EQ(median_step(steps).step, 2);
  EXPECT_THROW(median_step({}), std::logic_error);
}

TEST(Measured, ReductionsAndUpdatesAreDrawn) {
  const Measured run = measure("1f1b", 2, 4);
  const Schedule& schedule = run.plan.request.schedule;
  const Timeline picture = measured_timeline(schedule, run.steps[0], simulate(schedule, Costs{}));
  for (std::size_t r = 0; r < 2; ++r) {
    std::map<char, int> letters;
    double start = -1;
    for (const TimelineBar& bar : picture.rows[r]) {
      ++letters[bar.letter];
      EXPECT_GE(bar.start, start) << "bars stand in order";
      start = bar.start;
    }
    EXPECT_EQ(letters, (std::map<char, int>{{'F', 4}, {'B', 4}, {'R', 1}, {'U', 1}}));
  }
  const std::string svg = draw_svg({picture});
  EXPECT_NE(svg.find("<title>R on rank 1: "), std::string::npos);
  EXPECT_NE(svg.find("<title>U on rank 0: "), std::string::npos);
  EXPECT_NE(svg.find("U update"), std::string::npos);
}

// ---- the trace ---------------------------------------------------------------------------------------------------

struct Slice {
  double begin = 0;
  double end = 0;
  std::string name;
};

// The action that runs at a time, of one process.
const Slice* enclosing(const std::vector<Slice>& slices, double at) {
  for (const Slice& slice : slices) {
    if (slice.begin <= at && at <= slice.end) return &slice;
  }
  return nullptr;
}

TEST(Trace, HoldsEveryActionOnceAndEveryMessageAsOneArrowBetweenItsEnds) {
  for (const Case& it : kCases) {
    const Measured run = measure(it.name, it.ranks, it.micro_batches);
    const Schedule& schedule = run.plan.request.schedule;
    std::ostringstream text;
    write_trace(text, schedule, run.steps);
    const Json events = Json::parse(text.str()).at("traceEvents");

    std::map<int, std::vector<Slice>> actions;  // of each process
    std::map<int, int> updates;
    std::map<std::int64_t, const Json*> starts, ends;
    for (const Json& event : events) {
      const std::string phase = event.at("ph");
      const int rank = event.at("pid");
      if (phase == "X") {
        EXPECT_GE(event.at("dur").get<double>(), 0);
        const std::string category = event.at("cat");
        if (event.at("name") == "U") ++updates[rank];
        if (category == "wait" || category == "post_flush") continue;
        const double begin = event.at("ts");
        actions[rank].push_back({begin, begin + event.at("dur").get<double>(), event.at("name")});
      } else if (phase == "s") {
        EXPECT_TRUE(starts.emplace(event.at("id"), &event).second) << "an arrow starts once";
      } else if (phase == "f") {
        EXPECT_TRUE(ends.emplace(event.at("id"), &event).second) << "an arrow ends once";
        EXPECT_EQ(event.at("bp"), "e");
      } else {
        EXPECT_EQ(phase, "M");
      }
    }
    for (int r = 0; r < it.ranks; ++r) {
      EXPECT_EQ(actions[r].size(), kKept * schedule.actions(r).size()) << name_of(it);
      EXPECT_EQ(updates[r], static_cast<int>(kKept));
    }
    EXPECT_EQ(starts.size(), kKept * static_cast<std::size_t>(simulate(schedule, Costs{}).messages)) << name_of(it);
    ASSERT_EQ(starts.size(), ends.size());
    for (const auto& [id, start] : starts) {
      ASSERT_TRUE(ends.contains(id));
      const Json& end = *ends.at(id);
      const Slice* from = enclosing(actions[start->at("pid")], start->at("ts"));
      const Slice* to = enclosing(actions[end.at("pid")], end.at("ts"));
      ASSERT_NE(from, nullptr);
      ASSERT_NE(to, nullptr);
      EXPECT_NE(start->at("pid"), end.at("pid"));
      EXPECT_GE(to->begin, from->end) << from->name << " -> " << to->name << ": nobody computes with what is not there";
      // The same micro-batch, forwards to the next stage or backwards to the previous one.
      EXPECT_EQ(from->name.substr(from->name.find_first_of("FBIW") + 1),
                to->name.substr(to->name.find_first_of("FBIW") + 1));
      const auto& stages = schedule.placement.stages;
      const auto& sender = stages[static_cast<std::size_t>(std::stoi(from->name))];
      EXPECT_EQ(std::stoi(to->name), start->at("name") == "activation" ? sender.next : sender.previous);
    }
  }
}

}  // namespace
}  // namespace train_gpt
