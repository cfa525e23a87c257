// The run itself: every rank advances until it misses an input, and whoever produces that input wakes it. Every action
// is looked at once when it runs and at most twice more while its rank waits, so the time is linear and nothing but
// flat arrays is needed. Which rank advances first cannot matter: the lists fix every order.
#include "pipeline/simulate/simulator.h"

#include <algorithm>
#include <stdexcept>

#include "pipeline/schedule/channels.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/beside.h"
#include "pipeline/simulate/durations.h"
#include "pipeline/simulate/parts.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {
namespace {

constexpr double kNotYet = -1.0;
constexpr double kRounding = 1e-9;

class Run {
 public:
  Run(const Schedule& schedule, const StageCosts& costs, const DurationTable& durations, bool keep_intervals,
      const Collectives* collectives)
      : schedule_(schedule),
        stages_(schedule.placement.stages),
        costs_(costs),
        durations_(durations),
        channels_(schedule.placement),
        micro_batches_(static_cast<std::size_t>(schedule.micro_batches)),
        forward_ready_(stages_.size() * micro_batches_, kNotYet),
        gradient_ready_(stages_.size() * micro_batches_, kNotYet),
        channel_free_(channels_.channels().size(), 0.0),
        norm_ready_(static_cast<std::size_t>(schedule.steps), kNotYet),
        backwards_left_(norm_ready_.size(), stages_.size() * micro_batches_ / norm_ready_.size()),
        last_backward_(norm_ready_.size(), 0.0),
        ranks_(schedule.lists.size()) {
    result_.busy.assign(ranks_.size(), 0.0);
    result_.first_start.assign(ranks_.size(), 0.0);
    result_.last_end.assign(ranks_.size(), 0.0);
    if (collectives != nullptr) {
      for (const std::vector<Collective>& of_rank : *collectives) beside_.emplace_back(of_rank);
    }
    if (!keep_intervals) return;
    result_.intervals.resize(ranks_.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      result_.intervals[rank].resize(schedule.lists[rank].size());
    }
  }

  Simulation operator()() {
    for (int rank = schedule_.ranks - 1; rank >= 0; --rank) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      advance(rank);
    }
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (ranks_[rank].position < schedule_.lists[rank].size()) throw std::invalid_argument(what_blocks());
    }
    return std::move(result_);
  }

 private:
  struct RankState {
    std::size_t position = 0;  // the next action of its list
    double clock = 0.0;        // when the last one ended
    double sends_until = 0.0;  // when its last message so far has left
    const double* waits_for = nullptr;
  };

  std::size_t cell(int stage, int micro_batch) const { return stage * micro_batches_ + micro_batch; }

  // The first input of the action that nobody has produced, or nullptr; raises `start` to the moment all are here.
  const double* missing_input(const Action& action, double& start) const {
    const Placement::VirtualStage& stage = stages_[action.stage];
    const std::size_t own = cell(action.stage, action.micro_batch);
    const double* inputs[3] = {nullptr, nullptr, nullptr};
    if (const int step = step_of(schedule_, action); step >= 2) inputs[2] = &norm_ready_[step - 2];
    switch (action.op) {
      case Op::forward:
        if (stage.previous >= 0) inputs[0] = &forward_ready_[cell(stage.previous, action.micro_batch)];
        break;
      case Op::backward:
      case Op::backward_input:
        inputs[0] = &forward_ready_[own];
        if (stage.next >= 0) inputs[1] = &gradient_ready_[cell(stage.next, action.micro_batch)];
        break;
      case Op::backward_weight:
        inputs[0] = &gradient_ready_[own];
        break;
    }
    for (const double* input : inputs) {
      if (input == nullptr) continue;
      if (*input == kNotYet) return input;
      // The output of the stage itself lies on this rank; the array holds when it reaches the neighbour.
      if (input != &forward_ready_[own] && input != &gradient_ready_[own]) start = std::max(start, *input);
    }
    return nullptr;
  }

  void advance(int rank) {
    RankState& state = ranks_[rank];
    const std::vector<Action>& list = schedule_.lists[rank];
    while (state.position < list.size()) {
      const bool pair = durations_.runs_as_pair(rank, state.position);
      double start = std::max(state.clock, collectives_awaited(rank, state.position + (pair ? 1 : 0)));
      state.waits_for = missing_input(list[state.position], start);
      if (state.waits_for == nullptr && pair) state.waits_for = missing_input(list[state.position + 1], start);
      if (state.waits_for != nullptr) return;

      double duration = pair ? durations_.pair(rank, state.position) : durations_(rank, state.position);
      duration = slowed_by_sends(duration, state.sends_until - start, durations_.send_slowdown());
      if (state.position == 0) result_.first_start[rank] = start;
      state.clock = start + duration;
      result_.busy[rank] += duration;
      finish(rank, {start, state.clock});
      if (pair) finish(rank, {start, state.clock});
    }
    collectives_awaited(rank, state.position);
    result_.last_end[rank] = state.clock;
    if (!beside_.empty()) result_.step = std::max(result_.step, beside_[rank].end());
  }

  // Issues the rank's collectives that are due. When those are complete that its actions up to `position` need.
  double collectives_awaited(int rank, std::size_t position) {
    if (beside_.empty()) return 0.0;
    beside_[rank].issue(ranks_[rank].position, ranks_[rank].clock);
    return beside_[rank].awaited(position);
  }

  // Records the action at the rank's position, hands its output on and moves past it.
  void finish(int rank, Interval interval) {
    const std::size_t position = ranks_[rank].position++;
    const Action& action = schedule_.lists[rank][position];
    if (!result_.intervals.empty()) result_.intervals[rank][position] = interval;
    if (action.op == Op::backward || action.op == Op::backward_weight) finish_backward(action, interval.end);
    if (action.op == Op::backward_weight) return;

    const bool forward = action.op == Op::forward;
    const Placement::VirtualStage& stage = stages_[action.stage];
    double& ready = (forward ? forward_ready_ : gradient_ready_)[cell(action.stage, action.micro_batch)];
    if (ready != kNotYet) {
      throw std::invalid_argument(schedule_.name + ": rank " + std::to_string(rank) + " runs " + to_string(action) +
                                  (forward ? " twice" : " after a backward of the same micro-batch"));
    }
    ready = interval.end;
    if (const int channel = channels_.messages(action).produces; channel >= 0) {
      const Hop hop = costs_.hop_after(action.op, action.stage, schedule_.placement);
      const double sent = std::max(interval.end, channel_free_[channel]) + hop.transfer;
      channel_free_[channel] = sent;
      ready = sent + hop.latency;
      ++result_.messages;
      result_.bytes += hop.bytes;
      ranks_[rank].sends_until = std::max(ranks_[rank].sends_until, sent);
    }
    const int neighbour = forward ? stage.next : stage.previous;
    if (neighbour < 0) return;
    const int taker = stages_[neighbour].rank;
    if (ranks_[taker].waits_for == &ready) {
      ranks_[taker].waits_for = nullptr;
      runnable_.push_back(taker);
    }
  }

  // The update by a step's gradients needs their norm, and so all of them. (With one step nothing follows it.)
  void finish_backward(const Action& action, double end) {
    const std::size_t step = step_of(schedule_, action);
    last_backward_[step] = std::max(last_backward_[step], end);
    if (--backwards_left_[step] > 0) return;
    norm_ready_[step] = last_backward_[step];
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].waits_for != &norm_ready_[step]) continue;
      ranks_[rank].waits_for = nullptr;
      runnable_.push_back(static_cast<int>(rank));
    }
  }

  std::string what_blocks() const;

  const Schedule& schedule_;
  const std::vector<Placement::VirtualStage>& stages_;
  const StageCosts& costs_;
  const DurationTable& durations_;
  const ChannelTable channels_;
  const std::size_t micro_batches_;
  std::vector<double> forward_ready_;  // [stage][micro-batch]: when the output of F is where the next stage runs
  std::vector<double>
      gradient_ready_;                // [stage][micro-batch]: when the output of I or B is where the previous one runs
  std::vector<double> channel_free_;  // [channel]: when it can take the next message
  std::vector<double> norm_ready_;    // [step]: when the gradients of all ranks are there
  std::vector<std::size_t> backwards_left_;  // [step]: over all ranks
  std::vector<double> last_backward_;        // [step]: its end, among those that have run
  std::vector<RankState> ranks_;
  std::vector<Beside> beside_;  // [rank], or empty
  std::vector<int> runnable_;
  Simulation result_;
};

std::string Run::what_blocks() const {
  constexpr int kMostRanksNamed = 8;
  std::string message = schedule_.name + ": the lists block each other";
  int blocked = 0;
  for (int rank = 0; rank < schedule_.ranks; ++rank) {
    const RankState& state = ranks_[rank];
    if (state.position >= schedule_.lists[rank].size() || ++blocked > kMostRanksNamed) continue;
    const Action& action = schedule_.lists[rank][state.position];
    if (state.waits_for >= norm_ready_.data() && state.waits_for < norm_ready_.data() + norm_ready_.size()) {
      message += (blocked == 1 ? ": rank " : "; rank ") + std::to_string(rank) + " waits with " + to_string(action) +
                 " for the gradients of step " + std::to_string(state.waits_for - norm_ready_.data());
      continue;
    }
    const bool forward =
        state.waits_for >= forward_ready_.data() && state.waits_for < forward_ready_.data() + forward_ready_.size();
    const std::ptrdiff_t index = state.waits_for - (forward ? forward_ready_ : gradient_ready_).data();
    const int stage = static_cast<int>(index / schedule_.micro_batches);
    const int micro_batch = static_cast<int>(index % schedule_.micro_batches);
    const std::string name = to_string(Action{forward ? Op::forward : Op::backward_input, false, stage, micro_batch});
    message += (blocked == 1 ? ": rank " : "; rank ") + std::to_string(rank) + " waits with " + to_string(action) +
               " (action " + std::to_string(state.position) + ") for " + name + (forward ? "" : " or its B") +
               " of rank " + std::to_string(stages_[stage].rank);
  }
  if (blocked > kMostRanksNamed) message += "; and " + std::to_string(blocked - kMostRanksNamed) + " ranks more";
  return message;
}

void check_positions(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  if (schedule.ranks < 1 || schedule.lists.size() != static_cast<std::size_t>(schedule.ranks)) {
    throw std::invalid_argument(schedule.name + ": " + std::to_string(schedule.lists.size()) + " lists for " +
                                std::to_string(schedule.ranks) + " ranks");
  }
  const int stages = static_cast<int>(placement.stages.size());
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Action& action : schedule.actions(rank)) {
      if (action.stage >= 0 && action.stage < stages && action.micro_batch >= 0 &&
          action.micro_batch < schedule.micro_batches && placement.stages[action.stage].rank == rank) {
        continue;
      }
      throw std::invalid_argument(schedule.name + ": rank " + std::to_string(rank) + " cannot run " +
                                  to_string(action) + ": it is not one of its virtual stages or micro-batches");
    }
  }
}

}  // namespace

void add_up(Simulation& result) {
  double first = result.first_start[0];
  double last = 0.0;
  double total_busy = 0.0;
  for (std::size_t rank = 0; rank < result.busy.size(); ++rank) {
    total_busy += result.busy[rank];
    result.ideal = std::max(result.ideal, result.busy[rank]);
    result.span = std::max(result.span, result.last_end[rank] - result.first_start[rank]);
    first = std::min(first, result.first_start[rank]);
    last = std::max(last, result.last_end[rank]);
  }
  result.makespan = last - first;
  result.step = std::max(result.step, last);
  // Rounding may leave a sum of busy times an ulp above the span it fills.
  const double available = static_cast<double>(result.busy.size()) * result.makespan;
  if (available > 0.0) result.bubble = std::max(0.0, 1.0 - total_busy / available);
  if (result.span > 0.0) result.bubble_span = std::max(0.0, 1.0 - result.ideal / result.span);
}

void set_bound(Simulation& result, double bound) {
  // The two are sums in different orders: where they meet, they may differ in the last digits.
  result.lower_bound = bound < result.makespan * (1.0 + kRounding) ? std::min(bound, result.makespan) : bound;
}

Simulation simulate(const Schedule& schedule, const Costs& costs, const SimulateOptions& options) {
  return simulate(schedule, stage_costs(costs, schedule.placement), options);
}

Simulation simulate(const Schedule& schedule, const StageCosts& costs, const SimulateOptions& options) {
  check_positions(schedule);
  const DurationTable durations(schedule, costs, options.durations);
  const bool need_intervals = options.intervals || options.channels || options.critical_path;
  Simulation result = Run(schedule, costs, durations, need_intervals, options.collectives)();
  add_up(result);
  if (options.bound_and_memory) {
    set_bound(result, lower_bound(schedule, costs, durations));
    for (const LivePeaks& peaks : live_peaks(schedule, durations, options.weight_memory)) {
      result.peak_live.push_back(peaks.activations);
      result.peak_pending_weight.push_back(peaks.pending_weight);
    }
  }
  if (options.channels) result.channels = channel_loads(schedule, costs, result.intervals);
  if (options.critical_path) result.critical_path = critical_path(schedule, costs, result.intervals);
  if (!options.intervals) result.intervals = {};
  return result;
}

}  // namespace train_gpt
