// The executor's part in schedules that never flush: windows of an endless list (pipeline/simulate/versions.h). Slots
// are taken in turn, since micro-batches and messages leave in the order in which they came: activations by the number
// of the micro-batch, messages by theirs, both counted since the pipe was filled.
#include <algorithm>

#include "pipeline/train/executor.h"

namespace train_gpt {

void Executor::begin_flow() { forget_list(); }

void Executor::train_window(float dloss, const Window& window, const std::function<void(std::size_t)>& after_action) {
  use_ = ForwardUse::training;
  dloss_ = dloss;
  window_ = window;
  marks_.clear();
  inputs_.clear();
  next_missing_ = 0;
  if (window.own) clear_gradients();
  // All messages of a step are sure to come as soon as one of its actions is.
  for (std::size_t i = 0; window.next && i < rings_.size(); ++i) {
    if (rank_plan_.rings[i].kind != Ring::Kind::receive) continue;
    rings_[i].expected += static_cast<std::int64_t>(rings_[i].of(use_).size());
    post_receives(i);
  }
  run_actions(training_list(), 0, rank_plan_.actions.size(), after_action);
  pipeline_.catch_up();
  current_ = nullptr;
  phase_ = Phase::idle;
}

void Executor::end_flow() { await_sends(); }

// The step of an action of the window, where it has one.
std::int64_t Executor::step_of_action(const Action& action) const {
  return window_.step + (action.micro_batch >= plan_.request.batch.micro_batches ? 1 : 0);
}

bool Executor::takes_part(const Action& action) const {
  if (!flows()) return true;
  return step_of_action(action) == window_.step ? window_.own : window_.next;
}

// Where the tokens, targets and losses of an action's micro-batch are.
int Executor::batch_place(const Action& action) const {
  if (!flows()) return action.micro_batch;
  const int m = plan_.request.batch.micro_batches;
  return static_cast<int>(step_of_action(action) % rank_plan_.batches) * m + action.micro_batch % m;
}

Executor::Version Executor::version_of(const Action& action) const {
  if (flows() && stash_ != nullptr) {
    const int m = plan_.request.batch.micro_batches;
    const WeightStash::Place& place = stash_->of_micro_batch(step_of_action(action) * m + action.micro_batch % m);
    return {place.values, place.low};
  }
  const Version& version = versions_[static_cast<std::size_t>(step_of_action(action) % 2)];
  if (flows() && version.low != nullptr) return version;
  return {memory_.parameters(), memory_.working_parameters()};  // also where actions run alone, before any step
}

// The sum of a step's gradients, or one that waits in the tree of sums.
float* Executor::gradients(int place) const {
  return place == 0 && flows() ? memory_.step_gradients(window_.step) : memory_.gradients(place);
}

ActionPlan Executor::with_slots(const Action& action, ActionPlan plan) const {
  if (!flows()) return plan;
  const auto turn = [&](int ring, std::int64_t number) {
    return ring < 0 ? -1 : static_cast<int>(number % rank_plan_.rings[static_cast<std::size_t>(ring)].slots);
  };
  if (plan.input_ring >= 0) {
    plan.input_slot = turn(plan.input_ring, rings_[static_cast<std::size_t>(plan.input_ring)].taken);
  }
  if (plan.output_ring >= 0) {
    plan.output_slot = turn(plan.output_ring, rings_[static_cast<std::size_t>(plan.output_ring)].sent);
  }
  const std::size_t place = place_of(action.stage);
  const StageProgress& progress = progress_[place];
  const std::int64_t number = action.op == Op::forward ? progress.forwards : progress.weights;
  IndexOfLifetime pools = rank_plan_.stages[place].pools;
  for (const Lifetime lifetime : {Lifetime::forward_to_input, Lifetime::forward_to_weight, Lifetime::input_to_weight}) {
    const int pool = pools[lifetime];
    if (pool >= 0) {
      plan.slots[lifetime] = static_cast<int>(number % rank_plan_.pools[static_cast<std::size_t>(pool)].slots);
    }
  }
  return plan;
}

}  // namespace train_gpt
