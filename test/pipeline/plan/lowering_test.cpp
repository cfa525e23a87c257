// When the two gradients of a tied embedding may be summed: behind the last action that adds to either, and no later.
#include "pipeline/plan/lowering.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/schedule/catalog.h"

namespace train_gpt {
namespace {

struct Case {
  std::string schedule;
  int ranks = 2;
  HeadForm head = HeadForm::stored;
  std::int64_t vocab = 257;  // beyond 2048 the head has several shards
  int replicas = 1;
};

Plan plan_of(const Case& wanted) {
  PlanRequest request;
  request.model = {.layers = 3, .heads = 2, .hidden = 8, .vocab = wanted.vocab, .max_seq_len = 16};
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = 8, .replicas = wanted.replicas};
  request.schedule = make_schedule({.name = wanted.schedule, .ranks = wanted.ranks, .micro_batches = 8});
  request.batch.groups = wanted.replicas * request.directions();
  request.partition = uniform_partition(request.model, request.schedule.placement.depth());
  request.head = wanted.head;
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

TEST(Lowering, SumsOverReplicasAndCopiesComeFirstAndAfterAllActions) {
  for (const Case& wanted :
       {Case{.schedule = "zb-h1", .head = HeadForm::streamed, .replicas = 2}, Case{.schedule = "dualpipe"}}) {
    const Plan plan = plan_of(wanted);
    for (int rank = 0; rank < wanted.ranks; ++rank) {
      const std::vector<LoweredAction> actions = lower(plan, rank);
      ASSERT_EQ(actions.size(), 3U);
      EXPECT_EQ(actions[0].kind,
                wanted.replicas > 1 ? LoweredAction::Kind::reduce_replicas : LoweredAction::Kind::reduce_copies);
      EXPECT_EQ(actions[1].kind, LoweredAction::Kind::reduce_tied);
      EXPECT_EQ(actions[2].kind, LoweredAction::Kind::update);
      for (const LoweredAction& action : actions) EXPECT_EQ(action.after, plan.request.schedule.actions(rank).size());
    }
  }
}

}  // namespace
}  // namespace train_gpt
