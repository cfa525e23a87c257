#include "pipeline/train/executor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <stdexcept>
#include <utility>

#include "pipeline/plan/speculation.h"
#include "pipeline/schedule/flushless.h"

namespace train_gpt {
namespace {

// Bytes of the messages that a list takes from a ring, in order.
std::vector<std::int64_t> message_bytes_of(const std::vector<ActionPlan>& plans, int ring) {
  std::vector<std::int64_t> bytes;
  for (const ActionPlan& plan : plans) {
    if (plan.input_ring == ring) bytes.push_back(plan.input_bytes);
  }
  return bytes;
}

}  // namespace

Executor::List Executor::training_list() const {
  return {plan_.step_schedule().actions(rank_plan_.rank), rank_plan_.actions};
}

Executor::Executor(Device& device, Communicator& pipeline, const Plan& plan, RankMemory& memory)
    : device_(device),
      pipeline_(pipeline),
      plan_(plan),
      rank_plan_(memory.plan()),
      memory_(memory),
      table_(plan.request.schedule.placement),
      generation_(rank_plan_.generation),
      updates_each_backward_(stashes_weights(plan.request.schedule.name)) {
  for (const StagePlan& stage : rank_plan_.stages) {
    stages_.emplace_back(device_, stage.shape);
    gradient_ranges_.push_back(gradient_ranges(stage.shape, rank_plan_.gradient_layout()));
  }
  const std::vector<ActionPlan>* const lists[] = {&rank_plan_.actions, &rank_plan_.validation, &rank_plan_.generation};
  for (std::size_t i = 0; i < rank_plan_.rings.size(); ++i) {
    RingState& ring = rings_.emplace_back();
    ring.tickets.resize(static_cast<std::size_t>(rank_plan_.rings[i].slots));
    for (std::size_t use = 0; use < 3; ++use) ring.bytes[use] = message_bytes_of(*lists[use], static_cast<int>(i));
  }
  if (plan.request.spare_parameters) {
    const std::vector<std::size_t> ahead = train_gpt::actions_ahead(plan);
    actions_ahead_ = ahead[static_cast<std::size_t>(rank_plan_.rank)];
    for (std::size_t i = 0; i < rings_.size(); ++i) {
      if (rank_plan_.rings[i].kind != Ring::Kind::receive) continue;
      rings_[i].ahead = messages_ahead(plan, ahead, rank_plan_.rings[i].channel);
    }
  }
  progress_.resize(rank_plan_.stages.size());
  marks_.reserve(rank_plan_.actions.size());
  inputs_.reserve(rank_plan_.actions.size());
}

void Executor::open() {
  std::vector<Communicator::ChannelEnds> ends;
  for (std::size_t c = 0; c < table_.channels().size(); ++c) {
    const Channel& channel = table_.channels()[c];
    ends.push_back({channel.source, channel.destination, plan_.channel_bytes[c]});
  }
  for (const Ring& ring : rank_plan_.rings) {
    if (ring.kind != Ring::Kind::hand_over) ends[static_cast<std::size_t>(ring.channel)].slots = ring.slots;
  }
  pipeline_.open_channels(ends);
}

void Executor::train_step(float dloss, const std::function<void(std::size_t)>& after_action) {
  use_ = ForwardUse::training;
  dloss_ = dloss;
  clear_gradients();
  const std::size_t first = begin();
  run_actions(training_list(), first, rank_plan_.actions.size(), after_action);
  await_sends();
}

void Executor::validate() {
  use_ = ForwardUse::validation;
  begin();
  run_actions({plan_.validation.actions(rank_plan_.rank), rank_plan_.validation}, 0, rank_plan_.validation.size(), {});
  await_sends();
}

void Executor::next_logits(std::int64_t first, std::int64_t position) {
  use_ = ForwardUse::generation;
  first_position_ = first;
  position_ = position;
  if (plan_.request.caches) fit_generation(position + 1 - first);
  begin();
  run_actions({plan_.generation.actions(rank_plan_.rank), generation_}, 0, generation_.size(), {});
  await_sends();
}

// Messages are as long as what is computed: a position is a small part of a row.
void Executor::fit_generation(std::int64_t positions) {
  const std::vector<Action>& actions = plan_.generation.actions(rank_plan_.rank);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const StageShape& shape = rank_plan_.stage_plan(actions[i].stage).shape;
    const auto bytes = [&](int unit) { return generation_bytes(shape, plan_.request.precision, unit, positions); };
    generation_[i].input_bytes = bytes(shape.first_unit);
    generation_[i].output_bytes = bytes(shape.last_unit);
  }
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    rings_[i].bytes[static_cast<std::size_t>(ForwardUse::generation)] =
        message_bytes_of(generation_, static_cast<int>(i));
  }
}

void Executor::train_ahead(float dloss) {
  use_ = ForwardUse::training;
  dloss_ = dloss;
  forget_list();
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    // No more than is sent ahead, so that a message sent again after roll_back() meets no receive of before.
    rings_[i].expected = rings_[i].ahead;
    post_receives(i);
  }
  is_ahead_ = true;
  run_actions(training_list(), 0, actions_ahead_, {});
  current_ = nullptr;
  phase_ = Phase::idle;
}

// Receives and forgets what was sent ahead. All channels at once: the sender may be held up on any of them.
void Executor::roll_back() {
  pipeline_.await_until([&] {
    bool all = true;
    for (std::size_t i = 0; i < rings_.size(); ++i) {
      RingState& ring = rings_[i];
      const auto next_is_here = [&] {
        return pipeline_.done(ring.tickets[static_cast<std::size_t>(ring.taken % rank_plan_.rings[i].slots)]);
      };
      while (ring.taken < ring.posted && next_is_here()) {
        ++ring.taken;
        post_receives(i);
      }
      all = all && ring.taken == ring.expected;
    }
    return all;
  });
  await_sends();
  is_ahead_ = false;
}

// Starts the receives of a list. Returns the position of the first action that is left: 0, or the one after those that
// ran ahead.
std::size_t Executor::begin() {
  const bool goes_on = is_ahead_ && use_ == ForwardUse::training;
  if (is_ahead_ && !goes_on) throw std::logic_error("a training step has begun: nothing else can run");
  if (!goes_on) forget_list();
  is_ahead_ = false;
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    if (rank_plan_.rings[i].kind != Ring::Kind::receive) continue;
    rings_[i].expected = static_cast<int>(rings_[i].of(use_).size());
    post_receives(i);
  }
  return goes_on ? actions_ahead_ : 0;
}

// Clears the state that the last list left.
void Executor::forget_list() {
  for (RingState& ring : rings_) ring.posted = ring.taken = ring.sent = ring.expected = 0;
  progress_.assign(rank_plan_.stages.size(), {});
  marks_.clear();
  inputs_.clear();
  next_missing_ = 0;
}

void Executor::run_actions(List list, std::size_t begin, std::size_t end,
                           const std::function<void(std::size_t)>& after_action) {
  for (std::size_t i = begin; i < end; ++i) {
    ActionMarks marks;
    const Action& action = list.actions[i];
    marks.wait_begin = device_.mark();
    if (!takes_part(action)) {
      marks_.push_back({marks.wait_begin, marks.wait_begin, marks.wait_begin, marks.wait_begin});
      continue;
    }
    const ActionPlan plan = with_slots(action, list.plans[i]);
    current_ = &action;
    if (before_action_) before_action_(use_, i);
    wait_for(plan);
    marks.begin = middle_ = device_.mark();
    current_at_ = i;
    if (extra_work_) extra_work_(i);
    if (plan_.request.computes) {
      device_.begin_range(to_string(action).c_str());
      work(action, plan);
      device_.end_range();
    }
    marks.middle = middle_;
    marks.end = device_.mark();
    send(plan);
    marks_.push_back(marks);
    if (after_action) after_action(i);
  }
}

// Nothing of a list is left in flight when it ends.
void Executor::await_sends() {
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    if (rank_plan_.rings[i].kind != Ring::Kind::send) continue;
    phase_ = Phase::waiting_for_send_slot;
    waiting_ring_ = static_cast<int>(i);
    for (const Ticket ticket : rings_[i].tickets) pipeline_.await(ticket);
  }
  pipeline_.catch_up();
  current_ = nullptr;
  phase_ = Phase::idle;
}

// Starts as many receives of a ring as it has messages to expect and free slots.
void Executor::post_receives(std::size_t ring) {
  RingState& state = rings_[ring];
  const int slots = rank_plan_.rings[ring].slots;
  for (; state.posted < std::min(state.expected, state.taken + slots); ++state.posted) {
    const int slot = static_cast<int>(state.posted % slots);
    state.tickets[static_cast<std::size_t>(slot)] =
        pipeline_.receive(rank_plan_.rings[ring].channel, memory_.ring_slot(static_cast<int>(ring), slot),
                          state.bytes_of(use_, state.posted));
  }
}

void Executor::wait_for(const ActionPlan& plan) {
  const auto await_slot = [&](int ring, int slot) {
    waiting_ring_ = ring;
    pipeline_.await(rings_[static_cast<std::size_t>(ring)].tickets[static_cast<std::size_t>(slot)]);
  };
  if (plan.input_ring >= 0 && rank_plan_.rings[static_cast<std::size_t>(plan.input_ring)].kind == Ring::Kind::receive) {
    phase_ = Phase::waiting_for_input;
    const RingState& ring = rings_[static_cast<std::size_t>(plan.input_ring)];
    inputs_.push_back({current_, plan.input_ring, ring.tickets[static_cast<std::size_t>(plan.input_slot)]});
    await_slot(plan.input_ring, plan.input_slot);
  }
  if (plan.output_ring >= 0 && rank_plan_.rings[static_cast<std::size_t>(plan.output_ring)].kind == Ring::Kind::send) {
    phase_ = Phase::waiting_for_send_slot;
    await_slot(plan.output_ring, plan.output_slot);
  }
  phase_ = Phase::working;
}

// The position of a virtual stage among those of this rank.
std::size_t Executor::place_of(int stage) const {
  return static_cast<std::size_t>(&rank_plan_.stage_plan(stage) - rank_plan_.stages.data());
}

void Executor::work(const Action& action, const ActionPlan& plan) {
  const std::size_t place = place_of(action.stage);
  const StagePlan& stage_plan = rank_plan_.stages[place];
  Stage& stage = stages_[place];
  const Group group = updates_each_backward_ ? Group{.begins = true} : group_of(micro_batches_before(action));
  if (use_ == ForwardUse::training) begin_group(action, group);
  const Version version = version_of(action);
  const ParameterView parameters{.layout = &rank_plan_.working_layout(),
                                 .values = version.values,
                                 .low = version.low,
                                 .gradients = gradients(group.place),
                                 .first_micro_batch = use_ == ForwardUse::training && group.begins,
                                 .gradient_layout = &rank_plan_.gradient_layout()};
  void* input = memory_.ring_slot(plan.input_ring, plan.input_slot);
  void* output = memory_.ring_slot(plan.output_ring, plan.output_slot);
  const int batch_place = this->batch_place(action);
  const bool forward = action.op == Op::forward;
  const StageSlots slots{
      .input = forward ? input : nullptr,
      .output = forward ? output : nullptr,
      .output_gradient = forward ? nullptr : input,
      .input_gradient = forward ? nullptr : output,
      .forward_to_input = memory_.pool_slot(stage_plan.pools.forward_to_input, plan.slots.forward_to_input),
      .forward_to_weight = memory_.pool_slot(stage_plan.pools.forward_to_weight, plan.slots.forward_to_weight),
      .input_to_weight = memory_.pool_slot(stage_plan.pools.input_to_weight, plan.slots.input_to_weight),
      .scratch = memory_.scratch(),
      .tokens = memory_.tokens(batch_place),
      .targets = memory_.targets(batch_place),
      .losses = memory_.losses(batch_place),
      .dloss = dloss_,
      .logits = memory_.next_logits(),
      .logits_position = position_,
      .first_position = first_position_,
      .cache = memory_.cache(stage_plan)};
  if (forward) stage.forward(slots, parameters, use_);
  if (action.op == Op::backward || action.op == Op::backward_input) stage.backward_input(slots, parameters);
  if (action.op == Op::backward) middle_ = device_.mark();
  int summed = stage.shape().last_unit;  // units from here on have their sums
  if (forward && use_ == ForwardUse::training) end_group(action, group, {0, summed});
  if (action.op == Op::backward || action.op == Op::backward_weight) {
    const auto after_unit = [&](int unit) {
      end_group(action, group, {unit, std::exchange(summed, unit)});
      unit_is_complete(unit);
    };
    stage.backward_weight(slots, parameters, std::cref(after_unit));
  }
  if (use_ != ForwardUse::training) return;
  StageProgress& progress = progress_[place];
  if (forward) ++progress.forwards;
  if (action.op == Op::backward || action.op == Op::backward_weight) ++progress.weights;
}

// Which of its stage's micro-batches an action is, counted in the order in which they run: gradients are added in F (of
// a streamed head) or in W, and groups follow that order also where a hand-written list has another one.
int Executor::micro_batches_before(const Action& action) const {
  const StageProgress& progress = progress_[place_of(action.stage)];
  const std::int64_t all = action.op == Op::forward ? progress.forwards : progress.weights;
  return static_cast<int>(flows() ? all % plan_.request.batch.micro_batches : all);
}

// Group g has the micro-batches from floor(m g / G) on. Of the sums of the groups before it, one waits for every bit
// that is set in g, the largest first, so that its own place is the number of those bits. Where actions run alone, more
// than a step has, all are of the last group.
Executor::Group Executor::group_of(int micro_batches_before) const {
  const std::int64_t m = plan_.request.stage_micro_batches();
  const std::int64_t groups = plan_.request.local_groups();
  const std::int64_t before = std::min<std::int64_t>(micro_batches_before, m);
  const std::int64_t g = std::min(((before + 1) * groups - 1) / m, groups - 1);
  return {.number = static_cast<int>(g),
          .place = std::popcount(static_cast<std::uint64_t>(g)),
          .begins = before == m * g / groups,
          .ends = before + 1 == m * (g + 1) / groups};
}

// visit(range) for the gradients that an F or W of this stage adds to: the matrix of a streamed head gets its gradient
// in F, everything else in W.
template <class Visit>
void Executor::for_each_range(const Action& action, const Visit& visit) const {
  if (action.op == Op::backward_input) return;
  for (const GradientRange& range : gradient_ranges_[place_of(action.stage)]) {
    if (range.in_forward == (action.op == Op::forward)) visit(range);
  }
}

// Sets to zero what the first micro-batch of the first group will add to.
void Executor::clear_gradients() {
  if (!plan_.request.computes || rank_plan_.gradient_windows || updates_each_backward_) return;
  std::array<Device::Zeros, kTensorsAtOnce> zeros;
  std::size_t count = 0;
  const auto set_to_zero = [&] { device_.zero_all({zeros.data(), std::exchange(count, 0)}); };
  for (const std::vector<GradientRange>& ranges : gradient_ranges_) {
    for (const GradientRange& range : ranges) {
      if (range.set_by_first) continue;
      zeros[count++] = {gradients(0) + range.offset, range.elements};
      if (count == zeros.size()) set_to_zero();
    }
  }
  if (count > 0) set_to_zero();
}

// Likewise for each of the other groups, and for the first where other sections' gradients were in its place.
void Executor::begin_group(const Action& action, const Group& group) {
  const bool is_clear = group.number == 0 && !rank_plan_.gradient_windows && !updates_each_backward_;
  if (!group.begins || is_clear) return;
  for_each_range(action, [&](const GradientRange& range) {
    if (range.set_by_first) return;
    device_.zero(gradients(group.place) + range.offset, range.elements * static_cast<std::int64_t>(sizeof(float)));
  });
}

void Executor::unit_is_complete(int unit) {
  if (after_unit_ && current_ != nullptr) after_unit_(current_at_, unit);  // null: the action runs alone
}

// A group that ends joins the sums that wait for it, as binary counting carries: after group 1 the two are one sum,
// after group 3 all four are. For the gradients of these units alone.
void Executor::end_group(const Action& action, const Group& group, UnitRange units) {
  if (!group.ends) return;
  int place = group.place;
  for (auto bits = static_cast<unsigned>(group.number); (bits & 1U) != 0; bits >>= 1U, --place) {
    for_each_range(action, [&](const GradientRange& range) {
      if (range.unit < units.first || range.unit >= units.last) return;
      device_.add(gradients(place - 1) + range.offset, gradients(place) + range.offset, range.elements);
    });
  }
}

void Executor::send(const ActionPlan& plan) {
  if (plan.input_ring >= 0 && rank_plan_.rings[static_cast<std::size_t>(plan.input_ring)].kind == Ring::Kind::receive) {
    ++rings_[static_cast<std::size_t>(plan.input_ring)].taken;  // its slot is free again
    post_receives(static_cast<std::size_t>(plan.input_ring));
  }
  if (plan.output_ring < 0) return;
  const Ring& ring = rank_plan_.rings[static_cast<std::size_t>(plan.output_ring)];
  if (ring.kind != Ring::Kind::send) return;
  RingState& state = rings_[static_cast<std::size_t>(plan.output_ring)];
  ++state.sent;
  state.tickets[static_cast<std::size_t>(plan.output_slot)] =
      pipeline_.send(ring.channel, memory_.ring_slot(plan.output_ring, plan.output_slot), plan.output_bytes);
}

// The host may be ahead of the device: what holds the rank up is the first message that has not arrived.
const Executor::Input* Executor::missing_input() {
  while (next_missing_ < inputs_.size() && pipeline_.done(inputs_[next_missing_].ticket)) ++next_missing_;
  return next_missing_ < inputs_.size() ? &inputs_[next_missing_] : nullptr;
}

std::string Executor::doing() {
  if (current_ == nullptr || phase_ == Phase::idle) return "between two steps";
  const Input* missing = missing_input();
  if (phase_ == Phase::working && missing == nullptr) return "computing " + to_string(*current_);
  const Action& action = missing != nullptr ? *missing->action : *current_;
  const int ring = missing != nullptr ? missing->ring : waiting_ring_;
  const Channel& channel =
      table_.channels()[static_cast<std::size_t>(rank_plan_.rings[static_cast<std::size_t>(ring)].channel)];
  const std::string kind = channel.kind == Channel::Kind::activation ? "activation" : "gradient";
  if (missing != nullptr || phase_ == Phase::waiting_for_input) {
    return "waiting for the " + kind + " of micro-batch " + std::to_string(action.micro_batch) + " from rank " +
           std::to_string(channel.source) + ", to run " + to_string(action);
  }
  return "waiting until rank " + std::to_string(channel.destination) + " has taken an earlier " + kind + ", to run " +
         to_string(action);
}

}  // namespace train_gpt
