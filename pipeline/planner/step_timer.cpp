#include "pipeline/planner/step_timer.h"

#include <algorithm>

#include "pipeline/schedule/channels.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {
namespace {

constexpr int kOps = 4;

std::size_t index(int i) { return static_cast<std::size_t>(i); }

}  // namespace

StepTimer::StepTimer(const Schedule& schedule) : schedule_(schedule) {
  if (schedule.steps == 1) put_in_order();
}

// Every rank advances until it misses an input; whoever produces that wakes it.
void StepTimer::put_in_order() {
  const std::vector<Placement::VirtualStage>& stages = schedule_.placement.stages;
  const ChannelTable channels(schedule_.placement);
  channels_ = channels.channels().size();
  const std::size_t cells = stages.size() * index(schedule_.micro_batches);
  std::vector<std::int32_t> forward(cells, kNone), gradient(cells, kNone);  // the step that made it
  std::vector<std::int32_t> forward_waiter(cells, kNone), gradient_waiter(cells, kNone);
  std::vector<std::size_t> position(schedule_.lists.size(), 0);
  std::vector<int> runnable;
  std::size_t actions = 0;
  for (int rank = schedule_.ranks - 1; rank >= 0; --rank) {
    runnable.push_back(rank);
    actions += schedule_.actions(rank).size();
  }
  steps_.reserve(actions);
  while (!runnable.empty()) {
    const int rank = runnable.back();
    runnable.pop_back();
    const std::vector<Action>& list = schedule_.actions(rank);
    for (std::size_t& at = position[index(rank)]; at < list.size(); ++at) {
      const Action& action = list[at];
      has_pairs_ = has_pairs_ || action.fused_with_next;
      const bool is_forward = action.op == Op::forward;
      const Placement::VirtualStage& stage = stages[index(action.stage)];
      const auto cell = [&](int of_stage) {
        return index(of_stage) * index(schedule_.micro_batches) + index(action.micro_batch);
      };
      // On the same rank: if it has not run before, it never will.
      if (!is_forward && forward[cell(action.stage)] == kNone) break;
      if (action.op == Op::backward_weight && gradient[cell(action.stage)] == kNone) break;
      Step step;
      step.rank = rank;
      step.duration = kOps * action.stage + static_cast<std::int32_t>(action.op);
      const int source = action.op == Op::backward_weight ? kNone : is_forward ? stage.previous : stage.next;
      if (source >= 0) {
        step.input = (is_forward ? forward : gradient)[cell(source)];
        if (step.input == kNone) {
          (is_forward ? forward_waiter : gradient_waiter)[cell(source)] = rank;
          break;
        }
      }
      const auto own = static_cast<std::int32_t>(steps_.size());
      if (action.op != Op::backward_weight) {
        step.channel = channels.messages(action).produces;
        if (step.channel >= 0) step.hop = 2 * action.stage + (is_forward ? 0 : 1);
        (is_forward ? forward : gradient)[cell(action.stage)] = own;
        std::int32_t& waiter = (is_forward ? forward_waiter : gradient_waiter)[cell(action.stage)];
        if (waiter != kNone) runnable.push_back(waiter);
        waiter = kNone;
      }
      steps_.push_back(step);
    }
  }
  if (steps_.size() < actions) steps_.clear();
  for (const Step& step : steps_)
    if (step.hop != kNone) hops_.push_back(step.hop);
  std::sort(hops_.begin(), hops_.end());
  hops_.erase(std::unique(hops_.begin(), hops_.end()), hops_.end());
}

void StepTimer::look_up(const StageCosts& costs) {
  const std::size_t stages = schedule_.placement.stages.size();
  durations_.resize(kOps * stages);
  latency_.resize(2 * stages);
  transfer_.resize(2 * stages);
  const auto of = [](Op op) { return static_cast<std::size_t>(op); };
  for (std::size_t s = 0; s < stages; ++s) {
    double* durations = &durations_[kOps * s];
    durations[of(Op::forward)] = costs.forward[s];
    durations[of(Op::backward)] = costs.input[s] + costs.weight[s];
    durations[of(Op::backward_input)] = costs.input[s];
    durations[of(Op::backward_weight)] = costs.weight[s];
  }
  for (const std::int32_t i : hops_) {
    const Hop hop = costs.hop_after(i % 2 == 0 ? Op::forward : Op::backward, i / 2, schedule_.placement);
    latency_[index(i)] = hop.latency;
    transfer_[index(i)] = hop.transfer;
  }
}

double StepTimer::operator()(const StageCosts& costs) {
  const bool pairs = has_pairs_ && !costs.fused.empty();
  if (steps_.empty() || pairs || costs.send_slowdown > 0 || costs.forward.size() != schedule_.placement.stages.size()) {
    SimulateOptions options;
    options.intervals = options.channels = options.bound_and_memory = false;
    return simulate_step(schedule_, costs, options).makespan;
  }
  look_up(costs);
  rank_free_.assign(schedule_.lists.size(), 0.0);
  channel_free_.assign(channels_, 0.0);
  arrival_.resize(steps_.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    double& free = rank_free_[index(step.rank)];
    if (step.input != kNone) free = std::max(free, arrival_[index(step.input)]);
    free += durations_[index(step.duration)];
    arrival_[i] = free;
    if (step.hop == kNone) continue;
    double& channel = channel_free_[index(step.channel)];
    channel = std::max(free, channel) + transfer_[index(step.hop)];
    arrival_[i] = channel + latency_[index(step.hop)];
  }
  return *std::max_element(rank_free_.begin(), rank_free_.end());
}

}  // namespace train_gpt
