#include "pipeline/simulate/periodic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "pipeline/schedule/channels.h"
#include "pipeline/simulate/durations.h"
#include "pipeline/simulate/parts.h"

namespace train_gpt {
namespace {

constexpr double kSame = 4e-12;  // of the makespan: times that differ by less are equal but for rounding

using Positions = std::vector<std::size_t>;  // [rank]: how many actions of its list come before

// Where a list that is one turn longer has that turn more: `length` actions after any `first` .. `last`.
struct Turn {
  Positions first, last, length;
};

// A micro-batch counted from the first one of its stage: two directions share them out.
int own_number(const Schedule& schedule, const Action& action) {
  return action.micro_batch - schedule.placement.stages[static_cast<std::size_t>(action.stage)].first_micro_batch;
}

std::optional<Turn> find_turn(const Schedule& shorter, const Schedule& longer, int shift) {
  Turn turn;
  for (int rank = 0; rank < shorter.ranks; ++rank) {
    const std::vector<Action>&a = shorter.actions(rank), &b = longer.actions(rank);
    if (b.size() <= a.size()) return std::nullopt;
    const auto same = [&](const Action& x, const Action& y, int later) {
      return x.op == y.op && x.stage == y.stage && x.fused_with_next == y.fused_with_next &&
             own_number(shorter, x) + later == own_number(longer, y);
    };
    const std::size_t length = b.size() - a.size();
    std::size_t last = 0, first = a.size();
    while (last < a.size() && same(a[last], b[last], 0)) ++last;
    while (first > 0 && same(a[first - 1], b[first - 1 + length], shift)) --first;
    if (first > last) return std::nullopt;
    turn.first.push_back(first);
    turn.last.push_back(last);
    turn.length.push_back(length);
  }
  return turn;
}

// The times of a run that decide how it goes on.
class Clocks {
 public:
  Clocks(const Schedule& schedule, const StageCosts& costs, const Simulation& simulation)
      : schedule_(schedule),
        intervals_(simulation.intervals),
        table_(schedule.placement),
        slack_(kSame * simulation.makespan),
        micro_batches_(static_cast<std::size_t>(schedule.micro_batches)) {
    const std::size_t cells = schedule.placement.stages.size() * micro_batches_;
    for (Messages* messages : {&forward_, &gradient_}) {
      messages->arrival.assign(cells, 0.0);
      messages->sent.assign(cells, kNever);
      messages->taken.assign(cells, kNever);
    }
    std::vector<double> channel_free(table_.channels().size(), 0.0);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      std::vector<double>& left = left_.emplace_back(1, 0.0);
      for (std::size_t i = 0; i < schedule.actions(rank).size(); ++i) {
        const Action& action = schedule.actions(rank)[i];
        const double end = intervals_[static_cast<std::size_t>(rank)][i].end;
        left.push_back(left.back());
        if (action.op == Op::backward_weight) continue;
        take(action, i);
        Messages& messages = action.op == Op::forward ? forward_ : gradient_;
        const std::size_t own = cell(action.stage, action.micro_batch);
        messages.sent[own] = i;
        messages.arrival[own] = end;
        const int channel = table_.messages(action).produces;
        if (channel < 0) continue;
        const Hop hop = costs.hop_after(action.op, action.stage, schedule.placement);
        double& free = channel_free[static_cast<std::size_t>(channel)];
        free = std::max(end, free) + hop.transfer;
        messages.arrival[own] = free + hop.latency;
        left.back() = std::max(left.back(), free);
      }
    }
  }

  // The time by which the state before `later` lags behind that before `earlier`, if it is the same state `shift`
  // micro-batches later.
  std::optional<double> delay(const Positions& earlier, const Positions& later, int shift) const {
    const double delay = clock(0, later) - clock(0, earlier);
    for (std::size_t rank = 0; rank < later.size(); ++rank) {
      if (!close(clock(rank, later) - clock(rank, earlier), delay)) return std::nullopt;
      if (!close(left_[rank][later[rank]] - left_[rank][earlier[rank]], delay) && left_[rank].back() > 0.0)
        return std::nullopt;
    }
    for (const Messages* messages : {&forward_, &gradient_})
      if (!under_way_alike(*messages, earlier, later, shift, delay)) return std::nullopt;
    return delay;
  }

 private:
  static constexpr std::size_t kNever = static_cast<std::size_t>(-1);
  struct Messages {
    std::vector<double> arrival;           // [stage][micro-batch]
    std::vector<std::size_t> sent, taken;  // positions in the lists of the ranks that do
  };

  std::size_t cell(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * micro_batches_ + static_cast<std::size_t>(micro_batch);
  }
  bool close(double a, double b) const { return std::abs(a - b) <= slack_; }
  double clock(std::size_t rank, const Positions& before) const {
    return before[rank] == 0 ? 0.0 : intervals_[rank][before[rank] - 1].end;
  }

  void take(const Action& action, std::size_t position) {
    const Placement::VirtualStage& stage = schedule_.placement.stages[static_cast<std::size_t>(action.stage)];
    const int source = action.op == Op::forward ? stage.previous : stage.next;
    Messages& messages = action.op == Op::forward ? forward_ : gradient_;
    if (source >= 0) messages.taken[cell(source, action.micro_batch)] = position;
  }

  bool under_way_alike(const Messages& messages, const Positions& earlier, const Positions& later, int shift,
                       double delay) const {
    const std::vector<Placement::VirtualStage>& stages = schedule_.placement.stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const int target = &messages == &forward_ ? stages[s].next : stages[s].previous;
      if (target < 0) continue;
      const auto from = static_cast<std::size_t>(stages[s].rank);
      const auto to = static_cast<std::size_t>(stages[static_cast<std::size_t>(target)].rank);
      const auto under_way = [&](int mb, const Positions& before) {
        const std::size_t c = cell(static_cast<int>(s), mb);
        return messages.sent[c] < before[from] && messages.taken[c] >= before[to];
      };
      for (int mb = stages[s].first_micro_batch; mb < stages[s].last_micro_batch; ++mb) {
        const bool now = under_way(mb, earlier);
        const bool then = mb + shift < stages[s].last_micro_batch && under_way(mb + shift, later);
        if (now != then) return false;
        const std::size_t own = cell(static_cast<int>(s), mb);
        if (now && !close(messages.arrival[own + static_cast<std::size_t>(shift)] - messages.arrival[own], delay))
          return false;
      }
    }
    return true;
  }

  const Schedule& schedule_;
  const std::vector<std::vector<Interval>>& intervals_;
  ChannelTable table_;
  double slack_;
  std::size_t micro_batches_;
  Messages forward_, gradient_;
  std::vector<std::vector<double>> left_;  // [rank][actions before]: when its last message so far has left
};

// So many turns after which everything is later by `delay`, and what the ranks work in them.
struct Repetition {
  int turns = 0;
  double delay = 0.0;
  std::vector<RankWork> work;
};

std::vector<RankWork> work_between(const Schedule& schedule, const DurationTable& durations,
                                   const Simulation& simulation, const Positions& from, const Positions& to) {
  std::vector<RankWork> work(from.size());
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    for (std::size_t i = from[rank]; i < to[rank]; ++i) {
      const Interval& interval = simulation.intervals[rank][i];
      const bool weight = schedule.lists[rank][i].op == Op::backward_weight;
      work[rank].slowed += interval.end - interval.start;
      const bool pair = durations.runs_as_pair(static_cast<int>(rank), i);
      const double alone = pair ? durations.pair(static_cast<int>(rank), i) : durations(static_cast<int>(rank), i);
      work[rank].busy += alone;
      if (!weight) work[rank].critical += alone;
      if (pair) ++i;
    }
  }
  return work;
}

std::optional<Repetition> find_repetition(const Schedule& schedule, const StageCosts& costs,
                                          const Simulation& simulation, const Turn& turn, int shift) {
  // Where the lists may be cut at one and the same time, as late as they repeat themselves.
  double latest = simulation.makespan * 2;
  for (std::size_t rank = 0; rank < turn.first.size(); ++rank) {
    const std::size_t end = turn.last[rank] + turn.length[rank];
    const std::vector<Interval>& intervals = simulation.intervals[rank];
    latest = std::min(latest, end < intervals.size() ? intervals[end].start : intervals.back().end);
  }
  Positions later;
  for (const std::vector<Interval>& intervals : simulation.intervals) {
    const auto begins = [](const Interval& interval, double time) { return interval.start < time; };
    later.push_back(static_cast<std::size_t>(std::lower_bound(intervals.begin(), intervals.end(), latest, begins) -
                                             intervals.begin()));
  }
  const Clocks clocks(schedule, costs, simulation);
  Positions earlier = later;
  for (int turns = 1;; ++turns) {
    for (std::size_t rank = 0; rank < later.size(); ++rank) {
      if (earlier[rank] < turn.first[rank] + turn.length[rank]) return std::nullopt;
      earlier[rank] -= turn.length[rank];
    }
    const std::optional<double> delay = clocks.delay(earlier, later, turns * shift);
    if (!delay) continue;
    const DurationTable durations(schedule, costs, nullptr);
    return Repetition{turns, *delay, work_between(schedule, durations, simulation, earlier, later)};
  }
}

// The simulation with the repetition so many times more.
void repeat(Simulation& it, const Schedule& schedule, const StageCosts& costs, const Repetition& repetition, int times,
            int micro_batches) {
  const double more = times * repetition.delay;
  std::vector<RankWork> work = repetition.work;
  it.ideal = it.span = 0.0;
  for (std::size_t rank = 0; rank < it.busy.size(); ++rank) {
    work[rank].busy *= times;
    work[rank].critical *= times;
    it.busy[rank] += times * work[rank].slowed;
    it.last_end[rank] += more;
  }
  add_up(it);
  set_bound(it, lower_bound(schedule, costs, DurationTable(schedule, costs, nullptr), work));
  // Every micro-batch sends the same.
  it.messages = it.messages / schedule.micro_batches * micro_batches;
  it.bytes = it.bytes / schedule.micro_batches * micro_batches;
  for (ChannelLoad& load : it.channels) {
    load.messages = load.messages * micro_batches / schedule.micro_batches;
    load.bytes = load.bytes / schedule.micro_batches * micro_batches;
  }
}

}  // namespace

std::optional<Simulation> simulate_by_turns(const ScheduleRequest& request, const Costs& costs,
                                            const SimulateOptions& options) {
  if (options.intervals || options.critical_path || options.durations != nullptr) return std::nullopt;
  const int m = request.micro_batches;
  const int copies = placement_kind(request.name) == Placement::Kind::bidirectional ? 2 : 1;
  ScheduleRequest wanted = request;
  int turn_size = copies;
  if (takes_group_size(request.name)) {
    if (wanted.group_size == 0) wanted.group_size = default_group_size(request.ranks, m);
    turn_size = wanted.group_size;
  }
  const auto lists_of = [&](int micro_batches) {
    wanted.micro_batches = micro_batches;
    return make_schedule(wanted);
  };
  SimulateOptions with_times;
  with_times.channels = false;
  // In 64 bits: twice too many may be more than an int holds.
  for (std::int64_t least = std::max(4 * std::int64_t{request.ranks}, 6 * std::int64_t{turn_size});; least *= 2) {
    if (3 * (least + 2 * turn_size) > m) return std::nullopt;
    const int few = static_cast<int>(least + (m - least) % turn_size);
    const Schedule longer = lists_of(few + turn_size);
    const StageCosts stages = stage_costs(costs, longer.placement);
    const int shift = turn_size / copies;
    const std::optional<Turn> turn = find_turn(lists_of(few), longer, shift);
    if (!turn) continue;
    const auto repetition = find_repetition(longer, stages, simulate(longer, stages, with_times), *turn, shift);
    if (!repetition) continue;
    const int repeated = repetition->turns * turn_size;
    const int run = longer.micro_batches + (m - longer.micro_batches) % repeated;
    const Schedule schedule = lists_of(run);
    Simulation result = simulate(schedule, costs, options);
    repeat(result, schedule, stages, *repetition, (m - run) / repeated, m);
    return result;
  }
}

}  // namespace train_gpt
