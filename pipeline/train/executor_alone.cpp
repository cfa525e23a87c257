// Actions outside a step: one alone, to measure it, and the dry run of every kind of action before the first step.
#include <algorithm>
#include <map>
#include <stdexcept>

#include "pipeline/train/executor.h"

namespace train_gpt {

// The buffers of an action that runs outside of any list: the first of each kind, so that a B finds what its F left.
ActionPlan Executor::plan_alone(const Action& action) const {
  const List list = training_list();
  const auto found = std::ranges::find_if(list.actions, [&](const Action& one) {
    return one.stage == action.stage && (one.op == Op::forward) == (action.op == Op::forward);
  });
  if (found == list.actions.end()) throw std::logic_error(to_string(action) + " is not of this rank");
  ActionPlan plan = list.plans[static_cast<std::size_t>(found - list.actions.begin())];
  IndexOfLifetime pools = rank_plan_.stage_plan(action.stage).pools;
  for (const Lifetime lifetime : {Lifetime::forward_to_input, Lifetime::forward_to_weight, Lifetime::input_to_weight}) {
    plan.slots[lifetime] = pools[lifetime] >= 0 ? 0 : -1;
  }
  return plan;
}

void Executor::run_alone(const Action& action, float dloss) {
  if (plan_.request.flushless()) {
    use_ = ForwardUse::training;
    dloss_ = dloss;
    work(action, plan_alone(action));
    return;
  }
  const std::vector<Action>& list = plan_.request.schedule.actions(rank_plan_.rank);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool same_op = list[i].op == action.op || (list[i].op == Op::backward && action.op != Op::forward);
    if (!same_op || list[i].stage != action.stage || list[i].micro_batch != action.micro_batch) continue;
    use_ = ForwardUse::training;
    dloss_ = dloss;
    work(action, rank_plan_.actions[i]);
    return;
  }
  throw std::logic_error("action " + to_string(action) + " is not in the list of rank " +
                         std::to_string(rank_plan_.rank));
}

void Executor::dry_run() {
  const auto dry_run_list = [this](ForwardUse use, const Schedule& schedule, const std::vector<ActionPlan>& plans) {
    const std::vector<Action>& list = schedule.actions(rank_plan_.rank);
    std::map<int, int> first_of;  // stage -> its first micro-batch in the list, whose actions read what its F wrote
    use_ = use;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const int micro_batch = first_of.emplace(list[i].stage, list[i].micro_batch).first->second;
      if (list[i].micro_batch == micro_batch) work(list[i], plans[i]);
    }
  };
  const bool flushless = plan_.request.flushless();
  for (int time = 0; plan_.request.training && time < number_of_dry_runs(); ++time) {
    if (flushless) {
      dry_run_window();
    } else {
      dry_run_list(ForwardUse::training, plan_.request.schedule, rank_plan_.actions);
    }
  }
  dry_run_list(ForwardUse::validation, plan_.validation, rank_plan_.validation);
  dry_run_list(ForwardUse::generation, plan_.generation, rank_plan_.generation);
  forget_list();
}

// A product that sets a gradient and one that adds to it are different kernels: until a micro-batch has added.
int Executor::number_of_dry_runs() const {
  const int m = plan_.request.stage_micro_batches();
  for (int mb = 1; mb < m; ++mb) {
    if (!group_of(mb).begins) return mb + 1;
  }
  return 1;
}

void Executor::dry_run_window() {
  use_ = ForwardUse::training;
  for (const StagePlan& stage : rank_plan_.stages) {
    for (const Op op : {Op::forward, Op::backward}) {
      const Action action{.op = op, .stage = stage.stage};
      work(action, plan_alone(action));
    }
  }
}

}  // namespace train_gpt
