#include "pipeline/simulate/phases.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "pipeline/schedule/channels.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/durations.h"
#include "pipeline/simulate/parts.h"

namespace train_gpt {
namespace {

constexpr int kFew = 1000;      // micro-batches up to which the simulator itself is as good
constexpr int kListed = 4;      // micro-batches of the lists that stand for all
constexpr double kSame = 1e-9;  // of the makespan: a slot that becomes free within this time can be used

std::size_t index(int i) { return static_cast<std::size_t>(i); }

class Phases {
 public:
  // `listed`: the same schedule with a few micro-batches.
  Phases(const Schedule& listed, const StageCosts& costs, int micro_batches)
      : placement_(listed.placement),
        costs_(costs),
        channels_(placement_),
        micro_batches_(micro_batches),
        ranks_(index(listed.ranks)),
        channel_free_(channels_.channels().size()) {}

  // `tolerance`: queues are counted as well, see queues(); none: not.
  Simulation run(std::optional<double> tolerance) {
    tolerance_ = tolerance;
    ranks_.assign(ranks_.size(), {});
    std::fill(channel_free_.begin(), channel_free_.end(), 0.0);
    queues_.assign(channel_free_.size(), {});
    messages_.clear();
    const int stages = placement_.depth();
    for (int stage = 0; stage < stages; ++stage) pass(Op::forward, stage);
    messages_.clear();  // the last stage's backward waits for its own forward alone
    for (int stage = stages - 1; stage >= 0; --stage) pass(Op::backward, stage);
    Simulation result;
    for (const Rank& rank : ranks_) {
      result.busy.push_back(rank.busy);
      result.first_start.push_back(rank.first_start);
      result.last_end.push_back(rank.clock);
    }
    add_up(result);
    return result;
  }

  std::vector<ChannelLoad> loads() const {
    std::vector<ChannelLoad> loads;
    for (std::size_t c = 0; c < queues_.size(); ++c)
      loads.push_back(
          {channels_.channels()[c], queues_[c].messages, queues_[c].bytes, static_cast<int>(queues_[c].longest)});
    return loads;
  }

 private:
  struct Rank {
    double clock = 0.0, busy = 0.0, sends_until = 0.0, first_start = -1.0;
  };
  struct Message {
    double sent = 0.0;     // end of the action that sends it
    double arrives = 0.0;  // where the next stage runs
  };
  struct Queue {
    std::deque<double> taken;  // when messages are, of those that had not been when the last one was sent
    std::int64_t messages = 0;
    double bytes = 0.0;
    std::size_t longest = 0;
  };

  // All micro-batches through one stage. messages_: what comes from the stage before, then what goes to the next one.
  void pass(Op op, int stage) {
    const bool first = messages_.empty();
    if (first) messages_.resize(index(micro_batches_));
    Rank& rank = ranks_[index(placement_.stages[index(stage)].rank)];
    const std::size_t s = index(stage);
    const double duration = op == Op::forward ? costs_.forward[s] : costs_.input[s] + costs_.weight[s];
    const ChannelTable::Messages channel = channels_.messages({op, false, stage, 0});
    const Hop hop = costs_.hop_after(op, stage, placement_);
    for (Message& message : messages_) {
      const double start = first ? rank.clock : std::max(rank.clock, message.arrives);
      const double takes = slowed_by_sends(duration, rank.sends_until - start, costs_.send_slowdown);
      if (rank.first_start < 0.0) rank.first_start = start;
      rank.clock = start + takes;
      rank.busy += takes;
      if (channel.consumes >= 0 && tolerance_) count(queues_[index(channel.consumes)], message.sent, rank.clock);
      message = {rank.clock, rank.clock};
      if (channel.produces < 0) continue;
      double& free = channel_free_[index(channel.produces)];
      free = std::max(rank.clock, free) + hop.transfer;
      rank.sends_until = std::max(rank.sends_until, free);
      message.arrives = free + hop.latency;
      if (tolerance_) queues_[index(channel.produces)].bytes += hop.bytes;
    }
  }

  void count(Queue& queue, double sent, double taken) const {
    while (!queue.taken.empty() && queue.taken.front() <= sent + *tolerance_) queue.taken.pop_front();
    queue.taken.push_back(taken);
    queue.longest = std::max(queue.longest, queue.taken.size());
    ++queue.messages;
  }

  const Placement& placement_;
  const StageCosts& costs_;
  const ChannelTable channels_;
  const int micro_batches_;
  std::optional<double> tolerance_;
  std::vector<Message> messages_;  // [micro-batch]
  std::vector<Rank> ranks_;
  std::vector<double> channel_free_;  // [channel]: when it can take the next message
  std::vector<Queue> queues_;         // [channel]
};

// Bound and memory follow from the lists of a few micro-batches and the work of the others.
void add_bound_and_memory(Simulation& result, const Schedule& listed, const StageCosts& costs, int micro_batches,
                          double weight_memory) {
  const DurationTable durations(listed, costs, nullptr);
  std::vector<RankWork> others(result.busy.size());
  for (std::size_t s = 0; s < listed.placement.stages.size(); ++s) {
    RankWork& rank = others[index(listed.placement.stages[s].rank)];
    rank.busy += (micro_batches - listed.micro_batches) * (costs.forward[s] + costs.input[s] + costs.weight[s]);
  }
  for (RankWork& rank : others) rank.critical = rank.busy;  // B is not split
  set_bound(result, lower_bound(listed, costs, durations, others));
  for (const LivePeaks& peaks : live_peaks(listed, durations, weight_memory)) {
    result.peak_live.push_back(peaks.activations / listed.micro_batches * micro_batches);  // all are alive at once
    result.peak_pending_weight.push_back(peaks.pending_weight);
  }
}

}  // namespace

bool runs_in_phases(const std::string& name) { return name == "gpipe" || name == "breadth-first"; }

std::optional<Simulation> simulate_in_phases(const ScheduleRequest& request, const Costs& costs,
                                             const SimulateOptions& options) {
  if (!runs_in_phases(request.name) || request.micro_batches < kFew) return std::nullopt;
  if (options.intervals || options.critical_path || options.durations != nullptr) return std::nullopt;
  ScheduleRequest few = request;
  few.micro_batches = std::max(kListed, request.ranks);  // breadth-first wants one for every rank
  if (few.micro_batches > request.micro_batches) return std::nullopt;
  const Schedule listed = make_schedule(few);
  const StageCosts stages = stage_costs(costs, listed.placement);
  Phases phases(listed, stages, request.micro_batches);
  Simulation result = phases.run(std::nullopt);
  for (const Placement::VirtualStage& stage : listed.placement.stages) {
    const int s = static_cast<int>(&stage - listed.placement.stages.data());
    for (const Op op : {Op::forward, Op::backward}) {
      if (ChannelTable(listed.placement).messages({op, false, s, 0}).produces < 0) continue;
      result.messages += request.micro_batches;
      result.bytes += request.micro_batches * stages.hop_after(op, s, listed.placement).bytes;
    }
  }
  if (options.channels) {
    phases.run(kSame * *std::max_element(result.last_end.begin(), result.last_end.end()));
    result.channels = phases.loads();
  }
  if (options.bound_and_memory)
    add_bound_and_memory(result, listed, stages, request.micro_batches, options.weight_memory);
  return result;
}

}  // namespace train_gpt
