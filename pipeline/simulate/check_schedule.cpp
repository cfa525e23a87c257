#include "pipeline/simulate/check_schedule.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "pipeline/schedule/channels.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {

namespace {

std::string range(int first, int last) { return std::to_string(first) + " to " + std::to_string(last - 1); }

// Reads every list once, keeping per (stage, micro-batch) what has been done.
class ListChecker {
 public:
  explicit ListChecker(const Schedule& schedule)
      : schedule_(schedule),
        stages_(schedule.placement.stages),
        done_(stages_.size() * static_cast<std::size_t>(schedule.micro_batches)),
        last_forward_(stages_.size(), -1),
        last_weight_(stages_.size(), -1) {}

  void check() {
    for (int r = 0; r < schedule_.ranks; ++r) check_list(r);
    check_complete();
  }

  std::vector<std::string> notices() const;

 private:
  enum : std::uint8_t { kForward = 1, kInput = 2, kWeight = 4, kAll = 7 };

  [[noreturn]] void refuse(int rank, const Action& action, const std::string& what) const {
    throw std::invalid_argument("schedule " + schedule_.name + ": rank " + std::to_string(rank) + " runs " +
                                to_string(action) + " " + what);
  }

  std::uint8_t& done(int stage, int i) {
    return done_[static_cast<std::size_t>(stage) * schedule_.micro_batches + static_cast<std::size_t>(i)];
  }
  const Placement::VirtualStage& stage(int s) const { return stages_[static_cast<std::size_t>(s)]; }

  void check_list(int rank);
  void check_exists(int rank, const Action& action) const;
  void check_fused(int rank, std::size_t k) const;
  void check_order(int rank, const Action& action);
  void record(const Action& action);
  void check_complete();

  const Schedule& schedule_;
  const std::vector<Placement::VirtualStage>& stages_;
  std::vector<std::uint8_t> done_;      // [stage][micro-batch]
  std::vector<int> last_forward_;       // [stage]: largest micro-batch of F so far
  std::vector<int> last_weight_;        // likewise of B or W
  std::optional<Action> out_of_order_;  // the first F, B or W that comes after one of a later micro-batch
  int came_before_ = 0;                 // and the latter
};

void ListChecker::check_list(int rank) {
  const std::vector<Action>& list = schedule_.actions(rank);
  for (std::size_t k = 0; k < list.size(); ++k) {
    check_exists(rank, list[k]);
    if (!list[k].fused_with_next) {
      check_order(rank, list[k]);
      record(list[k]);
      continue;
    }
    // A pair starts when the inputs of both are there, so neither may wait for the other.
    check_fused(rank, k);
    check_exists(rank, list[k + 1]);
    check_order(rank, list[k]);
    check_order(rank, list[k + 1]);
    record(list[k]);
    record(list[++k]);
  }
}

void ListChecker::check_exists(int rank, const Action& action) const {
  const auto stages = static_cast<int>(stages_.size());
  if (action.stage < 0 || action.stage >= stages) {
    refuse(rank, action, "but there is no such stage: there are 0 to " + std::to_string(stages - 1));
  }
  const Placement::VirtualStage& where = stage(action.stage);
  if (where.rank != rank) {
    refuse(rank, action, "but that stage lives on rank " + std::to_string(where.rank));
  }
  if (action.micro_batch < where.first_micro_batch || action.micro_batch >= where.last_micro_batch) {
    refuse(rank, action,
           "but stage " + std::to_string(action.stage) + " takes micro-batches " +
               range(where.first_micro_batch, where.last_micro_batch));
  }
}

void ListChecker::check_fused(int rank, std::size_t k) const {
  const std::vector<Action>& list = schedule_.actions(rank);
  const bool pair = k + 1 < list.size() && list[k].op == Op::forward && list[k + 1].op == Op::backward &&
                    !list[k + 1].fused_with_next;
  if (!pair) refuse(rank, list[k], "fused with what follows, which must be one forward and one backward");
}

void ListChecker::check_order(int rank, const Action& action) {
  const int i = action.micro_batch;
  const std::uint8_t before = done(action.stage, i);
  const Placement::VirtualStage& where = stage(action.stage);
  const auto needs = [&](Op op, int s) {
    refuse(rank, action, "before " + to_string(Action{.op = op, .stage = s, .micro_batch = i}));
  };
  const auto on_this_rank = [&](int s) { return s >= 0 && stage(s).rank == rank; };
  switch (action.op) {
    case Op::forward:
      if (before & kForward) refuse(rank, action, "twice");
      if (on_this_rank(where.previous) && !(done(where.previous, i) & kForward)) needs(Op::forward, where.previous);
      break;
    case Op::backward:
    case Op::backward_input:
      if (before & kInput) refuse(rank, action, "after another backward of that stage and micro-batch");
      if (!(before & kForward)) needs(Op::forward, action.stage);
      if (on_this_rank(where.next) && !(done(where.next, i) & kInput)) needs(action.op, where.next);
      break;
    case Op::backward_weight:
      if (before & kWeight) refuse(rank, action, "after another B or W of that stage and micro-batch");
      if (!(before & kInput)) needs(Op::backward_input, action.stage);
      break;
  }
}

void ListChecker::record(const Action& action) {
  std::uint8_t& state = done(action.stage, action.micro_batch);
  if (action.op == Op::forward) state |= kForward;
  if (action.op == Op::backward || action.op == Op::backward_input) state |= kInput;
  if (action.op == Op::backward || action.op == Op::backward_weight) state |= kWeight;
  if (action.op == Op::backward_input) return;
  // A streamed head adds to its gradient in F, everything else in B or W.
  std::vector<int>& latest = action.op == Op::forward ? last_forward_ : last_weight_;
  int& last = latest[static_cast<std::size_t>(action.stage)];
  if (action.micro_batch < last && !out_of_order_) {
    out_of_order_ = action;
    came_before_ = last;
  }
  last = std::max(last, action.micro_batch);
}

void ListChecker::check_complete() {
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    for (int i = stages_[s].first_micro_batch; i < stages_[s].last_micro_batch; ++i) {
      const std::uint8_t state = done(static_cast<int>(s), i);
      if (state == kAll) continue;
      const Op missing = !(state & kForward) ? Op::forward : !(state & kInput) ? Op::backward : Op::backward_weight;
      throw std::invalid_argument("schedule " + schedule_.name + ": " +
                                  to_string(Action{.op = missing, .stage = static_cast<int>(s), .micro_batch = i}) +
                                  " is missing in the list of rank " + std::to_string(stages_[s].rank));
    }
  }
}

std::vector<std::string> ListChecker::notices() const {
  if (!out_of_order_) return {};
  const int stage = out_of_order_->stage;
  return {"schedule " + schedule_.name + " runs stage " + std::to_string(stage) + " out of micro-batch order (" +
          to_string(*out_of_order_) + " comes after micro-batch " + std::to_string(came_before_) +
          "): weight gradients may add up in another order, and its results may differ in the last bits from those of "
          "other schedules"};
}

// Compares the two ends of every channel; returns the number of messages of each.
std::vector<std::int64_t> check_channels(const Schedule& schedule, const ChannelTable& table) {
  const auto m = static_cast<std::uint32_t>(schedule.micro_batches);
  std::vector<std::vector<std::uint32_t>> produced(table.channels().size());  // stage * m + micro-batch of the sender
  for (const std::vector<Action>& list : schedule.lists) {
    for (const Action& action : list) {
      const int channel = table.messages(action).produces;
      if (channel < 0) continue;
      produced[static_cast<std::size_t>(channel)].push_back(static_cast<std::uint32_t>(action.stage) * m +
                                                            static_cast<std::uint32_t>(action.micro_batch));
    }
  }
  std::vector<std::int64_t> consumed(produced.size());
  for (const std::vector<Action>& list : schedule.lists) {
    for (const Action& action : list) {
      const int channel = table.messages(action).consumes;
      if (channel < 0) continue;
      const Placement::VirtualStage& stage = schedule.placement.stages[static_cast<std::size_t>(action.stage)];
      const bool forward = action.op == Op::forward;
      const auto wanted = static_cast<std::uint32_t>(forward ? stage.previous : stage.next) * m +
                          static_cast<std::uint32_t>(action.micro_batch);
      const auto index = static_cast<std::size_t>(consumed[static_cast<std::size_t>(channel)]++);
      const std::uint32_t found = produced[static_cast<std::size_t>(channel)][index];
      if (found == wanted) continue;
      const Action sent{.op = forward ? Op::forward : Op::backward_input,
                        .stage = static_cast<int>(found / m),
                        .micro_batch = static_cast<int>(found % m)};
      const Channel& ends = table.channels()[static_cast<std::size_t>(channel)];
      throw std::invalid_argument(
          "schedule " + schedule.name + ": rank " + std::to_string(ends.destination) + " runs " + to_string(action) +
          " when the next " + (forward ? "activation" : "gradient") + " from rank " + std::to_string(ends.source) +
          " is that of " + to_string(sent) + ": messages must be consumed in the order in which they are produced");
    }
  }
  return consumed;
}

void check_shape(const Schedule& schedule) {
  const bool consistent = schedule.ranks >= 1 && schedule.micro_batches >= 1 &&
                          schedule.lists.size() == static_cast<std::size_t>(schedule.ranks) &&
                          schedule.placement.ranks == schedule.ranks;
  if (!consistent)
    throw std::invalid_argument("schedule " + schedule.name + ": lists and placement disagree on p or m");

  std::size_t actions = 0;
  for (const std::vector<Action>& list : schedule.lists) actions += list.size();
  const std::size_t stages = schedule.placement.stages.size();
  const std::size_t passes = stages * static_cast<std::size_t>(schedule.micro_batches);
  // A stray large number in a file must not make the tables below exceed the memory.
  if (passes > 2 * actions || passes > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument("schedule " + schedule.name + ": " + std::to_string(actions) + " actions for " +
                                std::to_string(stages) + " stages and " + std::to_string(schedule.micro_batches) +
                                " micro-batches: each stage needs a forward and a backward of each micro-batch");
  }
}

}  // namespace

ScheduleCheck check_schedule(const Schedule& schedule, const Costs& costs) {
  check_shape(schedule);
  ScheduleCheck check;
  {
    ListChecker checker(schedule);
    checker.check();
    check.notices = checker.notices();
  }
  if (schedule.steps > 1) check_versions(schedule);
  const ChannelTable table(schedule.placement);
  const std::vector<std::int64_t> messages = check_channels(schedule, table);
  constexpr int kUnlimited = std::numeric_limits<int>::max();
  for (std::size_t c = 0; c < messages.size(); ++c) {
    check.channels.push_back({.channel = table.channels()[c], .messages = messages[c], .receive = kUnlimited});
  }
  if (const auto cycle = blocking_cycle(schedule, check.channels)) throw std::invalid_argument(*cycle);

  const Simulation simulation = simulate(schedule, costs, {.intervals = false});
  for (std::size_t c = 0; c < simulation.channels.size(); ++c) {
    check.channels[c].receive = std::max(2, simulation.channels[c].longest_queue);
  }
  // Two actions that end at the same moment may each have counted on the slot that the other one leaves.
  while (blocking_cycle(schedule, check.channels)) {
    for (ChannelSlots& channel : check.channels) ++channel.receive;
  }
  return check;
}

}  // namespace train_gpt
