// When sums are reduced: a section right after the last action that adds to it, copies and replicas before the ends of
// a tied embedding.
#include "pipeline/plan/lowering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

struct Case {
  std::string schedule;
  int ranks = 2;
  HeadForm head = HeadForm::stored;
  std::int64_t vocab = 257;  // beyond 2048 the head has several shards
  int replicas = 1;
  OptimizerKind optimizer = OptimizerKind::adamw;
  std::int64_t layers = 3;
};

Plan plan_of(const Case& wanted) {
  PlanRequest request;
  request.model = {.layers = wanted.layers, .heads = 2, .hidden = 8, .vocab = wanted.vocab, .max_seq_len = 16};
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = 8, .replicas = wanted.replicas};
  request.schedule = make_schedule({.name = wanted.schedule, .ranks = wanted.ranks, .micro_batches = 8});
  request.batch.groups = wanted.replicas * request.directions();
  request.partition = uniform_partition(request.model, request.schedule.placement.depth());
  request.head = wanted.head;
  request.optimizer = wanted.optimizer;
  return make_plan(request);
}

// Does this action add to a gradient of wte, as embedding or as head? A head that is streamed, which a stage has as a
// whole, adds in its forward.
bool adds_to_wte(const Action& action, UnitRange units, int first_head, int all, HeadForm head) {
  const bool weight = action.op == Op::backward || action.op == Op::backward_weight;
  const bool whole_head = units.first <= first_head && units.last == all;
  if (whole_head && head == HeadForm::streamed) {
    return action.op == Op::forward || (weight && units.first == 0);
  }
  return weight && (units.first == 0 || units.last > first_head);
}

std::size_t last_addition(const Plan& plan, int rank) {
  const PlanRequest& request = plan.request;
  const std::vector<UnitRange> ranges = unit_ranges(request.schedule.placement, request.partition);
  const std::vector<Action>& list = request.schedule.actions(rank);
  std::size_t last = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (adds_to_wte(list[i], ranges[static_cast<std::size_t>(list[i].stage)], first_head_unit(request.model),
                    unit_count(request.model), request.head)) {
      last = i + 1;
    }
  }
  return last;
}

TEST(Lowering, TheTiedSumFollowsTheLastActionThatAddsToItAndNoOther) {
  int sums = 0;
  for (const std::string& schedule : schedule_names()) {
    if (schedule == "dualpipe") continue;  // its sums wait for those of the copies
    for (const int ranks : {1, 2, 3, 4}) {
      for (const HeadForm head : {HeadForm::stored, HeadForm::streamed}) {
        for (const std::int64_t vocab : {257, 5000}) {
          const Plan plan = plan_of({.schedule = schedule, .ranks = ranks, .head = head, .vocab = vocab});
          for (int rank = 0; rank < ranks; ++rank) {
            for (const LoweredAction& action : lower(plan, rank)) {
              if (action.kind != LoweredAction::Kind::reduce_tied) continue;
              EXPECT_EQ(action.after, last_addition(plan, rank))
                  << schedule << " on rank " << rank << " of " << ranks << ", vocabulary " << vocab
                  << (head == HeadForm::stored ? ", stored" : ", streamed");
              ++sums;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(sums, 100);
}

std::size_t last_weight(const std::vector<Action>& list, int stage) {
  const auto adds = [&](const Action& action) {
    return action.stage == stage && (action.op == Op::backward || action.op == Op::backward_weight);
  };
  return static_cast<std::size_t>(list.rend() - std::find_if(list.rbegin(), list.rend(), adds));
}

TEST(Lowering, EverySectionIsReducedBehindTheLastWOfItsStage) {
  for (const std::string& schedule : schedule_names()) {
    if (schedule == "dualpipe") continue;
    for (const int ranks : {1, 2, 3}) {
      const Plan plan = plan_of({.schedule = schedule, .ranks = ranks, .replicas = 2});
      for (const RankPlan& rank : plan.ranks) {
        std::vector<int> reduced;
        std::size_t after = 0;
        for (const LoweredAction& action : lower(plan, rank.rank)) {
          if (action.kind != LoweredAction::Kind::reduce_replicas) continue;
          const Section& section = rank.sections[static_cast<std::size_t>(action.section)];
          EXPECT_EQ(action.after, last_weight(plan.request.schedule.actions(rank.rank), section.stage)) << schedule;
          EXPECT_GE(action.after, after) << schedule;
          after = action.after;
          reduced.push_back(action.section);
        }
        std::ranges::sort(reduced);
        std::vector<int> all(rank.sections.size());
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(reduced, all) << schedule << " on rank " << rank.rank << " of " << ranks;
      }
    }
  }
}

std::int64_t elements_of(const RankPlan& rank, int stage, int unit) {
  std::int64_t elements = 0;
  for (const Section& section : rank.sections) {
    if (section.stage != stage || section.is_of_tied_wte()) continue;
    for (const int index : section.entries) {
      const TensorInfo& info = rank.layout.entries[static_cast<std::size_t>(index)].info;
      if (info.unit == unit) elements += arena_elements(info);
    }
  }
  return elements;
}

// W runs from the last unit of a stage to the first: what leaves within it has no unit below. Of the parts, four at
// most, none is larger than a quarter by more than a unit.
TEST(Lowering, PartsLeaveAsTheLastWIsThroughTheirUnits) {
  int within = 0;
  for (const std::string& schedule : schedule_names()) {
    for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::muon}) {
      const Plan plan =
          plan_of({.schedule = schedule, .ranks = 2, .replicas = 2, .optimizer = optimizer, .layers = 11});
      for (const RankPlan& rank : plan.ranks) {
        std::map<int, int> last;  // stage -> unit of the part before
        std::map<int, std::vector<std::int64_t>> parts;
        for (const LoweredAction& action : lower(plan, rank.rank)) {
          if (action.kind != LoweredAction::Kind::reduce_replicas) continue;
          const Section& section = rank.sections[static_cast<std::size_t>(action.section)];
          const StageShape& shape = rank.stage_plan(section.stage).shape;
          const int unit = action.within < 0 ? shape.first_unit : action.within;
          EXPECT_LE(unit, last.emplace(section.stage, shape.last_unit).first->second) << schedule;
          last[section.stage] = unit;
          for (const int index : section.entries) {
            const ArenaLayout::Entry& entry = rank.layout.entries[static_cast<std::size_t>(index)];
            const bool of_head = section.kind == Section::Kind::head;
            EXPECT_GE(of_head ? first_head_unit(plan.request.model) : entry.info.unit, unit) << entry.info.name;
          }
          if (action.within >= 0) ++within;
          if (section.kind == Section::Kind::units) parts[section.stage].push_back(section.elements);
        }
        if (optimizer == OptimizerKind::muon || schedule == "dualpipe") continue;
        for (const auto& [stage, elements] : parts) {
          const StageShape& shape = rank.stage_plan(stage).shape;
          std::int64_t all = 0, largest = 0;
          for (int unit = shape.first_unit; unit < shape.last_unit; ++unit) {
            all += elements_of(rank, stage, unit);
            largest = std::max(largest, elements_of(rank, stage, unit));
          }
          EXPECT_LE(elements.size(), 4U) << schedule;
          EXPECT_LE(std::ranges::max(elements), all / 4 + largest) << schedule;
          EXPECT_EQ(std::reduce(elements.begin(), elements.end()), all) << schedule;
        }
      }
    }
  }
  EXPECT_GT(within, 100);
}

TEST(Lowering, NothingLeavesWithinAWWhoseReductionsWaitForMore) {
  const auto any_within = [](const Plan& plan) {
    return std::ranges::any_of(lower(plan, 0), [](const LoweredAction& one) { return one.within >= 0; });
  };
  EXPECT_TRUE(any_within(plan_of({.schedule = "1f1b", .replicas = 2})));
  EXPECT_FALSE(any_within(plan_of({.schedule = "1f1b"})));
  EXPECT_FALSE(any_within(plan_of({.schedule = "dualpipe", .replicas = 2})));
}

// (model stage, kind, first shard) of the sections that two mirrored ranks reduce, in the order in which one does.
using Reduced = std::vector<std::tuple<int, Section::Kind, int>>;
Reduced sums_of_mirrors(const Plan& plan, int rank) {
  Reduced order;
  for (const LoweredAction& action : lower(plan, rank)) {
    if (action.kind != LoweredAction::Kind::reduce_mirrors) continue;
    const Section& section =
        plan.ranks[static_cast<std::size_t>(rank)].sections[static_cast<std::size_t>(action.section)];
    EXPECT_GE(action.after, last_weight(plan.request.schedule.actions(rank), section.stage));
    const auto& stages = plan.request.schedule.placement.stages;
    order.emplace_back(stages[static_cast<std::size_t>(section.stage)].model_stage, section.kind, section.first_shard);
  }
  return order;
}

// A sum over copies pairs what is the same tensor on both, also where a stage has several sections.
TEST(Lowering, MirroredRanksReduceTheSameSectionsInOneOrder) {
  for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::muon}) {
    for (const int ranks : {2, 4}) {
      for (const std::int64_t vocab : {257, 5000}) {
        const Plan plan = plan_of({.schedule = "dualpipe", .ranks = ranks, .vocab = vocab, .optimizer = optimizer});
        for (int rank = 0; rank < ranks / 2; ++rank) {
          const Reduced order = sums_of_mirrors(plan, rank);
          EXPECT_EQ(order, sums_of_mirrors(plan, ranks - 1 - rank)) << to_string(optimizer) << " on rank " << rank;
          EXPECT_EQ(order.size(), plan.ranks[static_cast<std::size_t>(rank)].sections.size());
          EXPECT_EQ((std::set<Reduced::value_type>(order.begin(), order.end()).size()), order.size());
        }
      }
    }
  }
}

// They are partial sums of the same tensor.
TEST(Lowering, TheTiedSumNeedsAllSumsOfItsTensor) {
  for (const Case& wanted : {Case{.schedule = "zb-h1", .head = HeadForm::streamed, .replicas = 2},
                             Case{.schedule = "dualpipe"}, Case{.schedule = "dualpipe", .replicas = 2}}) {
    const Plan plan = plan_of(wanted);
    for (int rank = 0; rank < wanted.ranks; ++rank) {
      const std::vector<LoweredAction> actions = lower(plan, rank);
      const std::vector<Section>& sections = plan.ranks[static_cast<std::size_t>(rank)].sections;
      const auto last =
          wanted.replicas > 1 ? LoweredAction::Kind::reduce_replicas : LoweredAction::Kind::reduce_mirrors;
      std::vector<std::size_t> sums;
      int tied = 0;
      for (std::size_t i = 0; i < actions.size(); ++i) {
        const bool of_wte =
            actions[i].kind == last && sections[static_cast<std::size_t>(actions[i].section)].is_of_tied_wte();
        if (of_wte) sums.push_back(i);
        if (actions[i].kind != LoweredAction::Kind::reduce_tied) continue;
        EXPECT_EQ(actions[i].needs, sums) << wanted.schedule;
        EXPECT_EQ(actions[i].after, plan.request.schedule.actions(rank).size());
        ++tied;
      }
      EXPECT_EQ(tied, 1) << wanted.schedule << " on rank " << rank;
      EXPECT_EQ(actions.back().kind, LoweredAction::Kind::update);
      EXPECT_EQ(actions.back().after, plan.request.schedule.actions(rank).size());
    }
  }
}

}  // namespace
}  // namespace train_gpt
