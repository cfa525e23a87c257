#include "pipeline/plan/execution_plan.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "model/muon.h"
#include "pipeline/plan/forward_only.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/plan/plan_request.h"
#include "pipeline/plan/shards.h"
#include "pipeline/schedule/channels.h"
#include "pipeline/simulate/check_schedule.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {
namespace {

// Hands out the lowest free number; remembers how many were needed.
class SlotNumbers {
 public:
  int take() {
    if (free_.empty()) return count_++;
    const auto lowest = std::min_element(free_.begin(), free_.end());
    const int slot = *lowest;
    free_.erase(lowest);
    return slot;
  }
  void give_back(int slot) { free_.push_back(slot); }
  int count() const { return count_; }

 private:
  std::vector<int> free_;
  int count_ = 0;
};

constexpr int kSendSlots = 2;

// Receive slots of every channel: what the check wants for the training schedule, and the longest queue of the
// forward-only one (in its own run no more messages wait, so that run stays possible in any timing).
std::vector<int> receive_slots(const PlanRequest& request, std::vector<int> validation_queues) {
  std::vector<int> slots = std::move(validation_queues);
  const std::vector<ChannelSlots> wanted = check_schedule(request.schedule, request.costs).channels;
  for (std::size_t c = 0; c < slots.size(); ++c) slots[c] = std::max(slots[c], wanted[c].receive);
  return slots;
}

// Plans one rank: walks its lists once and gives every action its slots.
class RankPlanner {
 public:
  RankPlanner(const PlanRequest& request, const ChannelTable& table, const std::vector<int>& receive_slots, int rank)
      : request_(request), table_(table), receive_slots_(receive_slots) {
    plan_.rank = rank;
    const auto ranges = unit_ranges(request.schedule.placement, request.partition);
    std::vector<bool> units(static_cast<std::size_t>(unit_count(request.model)), false);
    for (const int s : placement().stages_of(rank)) {
      const UnitRange range = ranges[static_cast<std::size_t>(s)];
      for (int u = range.first; u < range.last; ++u) units[static_cast<std::size_t>(u)] = true;
      add_stage(s, range);
    }
    plan_.layout = arena_layout(request.model, units, request.optimizer);
    // An update runs between actions, never beside one.
    if (request.training)
      plan_.scratch_bytes = std::max(plan_.scratch_bytes, muon_scratch_bytes(request.precision, plan_.layout));
    plan_.sections =
        arrange_by_stage(plan_.layout, request.model, request.partition, plan_.stages, reduction_parts(request));
    for (Section& section : plan_.sections) {
      if (request.zero > 0) section.cuts = piece_cuts(section, plan_.layout, request.batch.replicas);
    }
  }

  // step: of the training list, what is run for a step: all of it, or its window.
  RankPlan finish(const std::vector<Action>& training, const std::vector<Action>& step,
                  const std::vector<Action>& validation, const std::vector<Action>& generation) {
    if (request_.training) {
      plan_.actions = walk(training, ForwardUse::training);
      if (request_.flushless()) plan_.actions = of_window(training, step);
      note_batches(step);
      if (request_.flushless()) note_next_batch();
    }
    plan_.validation = walk(validation, ForwardUse::validation);
    note_batches(validation);
    plan_.generation = walk(generation, ForwardUse::generation);
    plan_.gives_logits = std::any_of(generation.begin(), generation.end(), [&](const Action& action) {
      return plan_.stage_plan(action.stage).shape.has_losses();
    });
    for (std::size_t i = 0; i < pool_numbers_.size(); ++i) plan_.pools[i].slots = pool_numbers_[i].count();
    for (std::size_t i = 0; i < plan_.rings.size(); ++i) {  // a list with few messages needs no more slots than that
      if (plan_.rings[i].kind == Ring::Kind::hand_over) continue;
      plan_.rings[i].slots = std::min(plan_.rings[i].slots, most_messages_[static_cast<int>(i)]);
    }
    if (request_.training) plan_.gradient_windows = gradient_windows(request_, plan_, training);
    if (request_.training) add_parameter_windows({training, validation, generation});
    add_memory_lines(request_, plan_);
    return std::move(plan_);
  }

 private:
  const Placement& placement() const { return request_.schedule.placement; }
  const Placement::VirtualStage& virtual_stage(int s) const { return placement().stages[static_cast<std::size_t>(s)]; }

  void add_stage(int s, UnitRange range) {
    StagePlan stage;
    stage.stage = s;
    stage.shape = {.model = request_.model,
                   .first_unit = range.first,
                   .last_unit = range.last,
                   .B = request_.batch.rows,
                   .T = request_.batch.seq_len,
                   .head = request_.head,
                   .chunks = request_.head_chunks,
                   .caches = request_.caches,
                   .recompute = {}};
    if (!request_.recompute.empty()) {
      stage.shape.recompute.assign(request_.recompute.begin() + range.first, request_.recompute.begin() + range.last);
    }
    // Forwards alone run through the first parameter copy.
    stage.bytes = stage_bytes(stage.shape, request_.precision, request_.training, virtual_stage(s).copy == 0);
    stage.pools.forward_to_input = pool_for(Lifetime::forward_to_input, stage.bytes.forward_to_input);
    stage.pools.forward_to_weight = pool_for(Lifetime::forward_to_weight, stage.bytes.forward_to_weight);
    stage.pools.input_to_weight = pool_for(Lifetime::input_to_weight, stage.bytes.input_to_weight);
    stage.before = message_bytes(stage.shape, request_.precision, range.first);
    stage.after = message_bytes(stage.shape, request_.precision, range.last);
    plan_.scratch_bytes = std::max(plan_.scratch_bytes, stage.bytes.scratch);
    for (const StagePlan& before : plan_.stages) stage.cache_offset += before.bytes.cache;
    plan_.stages.push_back(std::move(stage));
  }

  // Gathered once per list where the limit allows it; without a limit however they take less.
  void add_parameter_windows(const RankLists& lists) {
    const std::optional<ParameterWindows> per_list = parameter_windows(request_, plan_, lists, /*per_use=*/false);
    std::optional<ParameterWindows> per_use = parameter_windows(request_, plan_, lists, /*per_use=*/true);
    plan_.parameter_windows = per_list;
    if (!per_use || (per_list && per_list->elements <= per_use->elements)) return;
    if (per_list && request_.memory_limit > 0) {
      add_memory_lines(request_, plan_);
      const bool fits = plan_.total_bytes() <= request_.memory_limit;
      plan_.memory.clear();
      if (fits) return;
    }
    plan_.parameter_windows = std::move(per_use);
  }

  int pool_for(Lifetime lifetime, std::int64_t bytes) {
    if (bytes == 0) return -1;
    for (std::size_t i = 0; i < plan_.pools.size(); ++i) {
      if (plan_.pools[i].lifetime == lifetime && plan_.pools[i].slot_bytes == bytes) return static_cast<int>(i);
    }
    plan_.pools.push_back({lifetime, bytes, 0});
    pool_numbers_.emplace_back();
    return static_cast<int>(plan_.pools.size()) - 1;
  }

  int ring_for(const Ring& wanted) {
    for (std::size_t i = 0; i < plan_.rings.size(); ++i) {
      const Ring& ring = plan_.rings[i];
      if (ring.kind == wanted.kind && ring.channel == wanted.channel && ring.producer == wanted.producer &&
          ring.content == wanted.content) {
        return static_cast<int>(i);
      }
    }
    plan_.rings.push_back(wanted);
    return static_cast<int>(plan_.rings.size()) - 1;
  }

  std::vector<ActionPlan> walk(const std::vector<Action>& list, ForwardUse use) {
    messages_.clear();
    hand_overs_.clear();
    std::vector<ActionPlan> planned;
    planned.reserve(list.size());
    int live = 0;
    for (const Action& action : list) {
      ActionPlan buffers;
      if (action.op != Op::backward_weight) {
        plan_input(action, use, buffers);
        plan_output(action, use, buffers);
      }
      if (use == ForwardUse::training) {
        take_slots(action, buffers);
        give_back_slots(action, buffers.slots);
        if (action.op == Op::forward) plan_.live_micro_batches = std::max(plan_.live_micro_batches, ++live);
        if (action.op == Op::backward || action.op == Op::backward_weight) --live;
      }
      planned.push_back(buffers);
    }
    for (const auto& [ring, count] : messages_) most_messages_[ring] = std::max(most_messages_[ring], count);
    return planned;
  }

  // Without a flush the executor counts slots itself: here their numbers and the bytes matter.
  std::vector<ActionPlan> of_window(const std::vector<Action>& all, const std::vector<Action>& window) const {
    std::vector<ActionPlan> actions;
    for (const Action& action : window) {
      const auto first = std::ranges::find_if(
          all, [&](const Action& one) { return one.op == action.op && one.stage == action.stage; });
      actions.push_back(plan_.actions[static_cast<std::size_t>(first - all.begin())]);
    }
    return actions;
  }

  // Where forwards of the next step run ahead the tokens of two steps are there, those of even and of odd ones.
  void note_next_batch() {
    const int m = request_.batch.micro_batches;
    for (MicroBatches* of : {&plan_.tokens, &plan_.targets}) {
      if (of->end > m) plan_.batches = 2;
    }
    for (MicroBatches* of : {&plan_.tokens, &plan_.targets}) {
      if (of->end > 0) of->end = plan_.batches * m;
    }
  }

  void note_batches(const std::vector<Action>& list) {
    for (const Action& action : list) {
      const StageShape& shape = plan_.stage_plan(action.stage).shape;
      if (shape.has_embedding()) plan_.tokens.include(action.micro_batch);
      if (shape.has_shards()) plan_.targets.include(action.micro_batch);
      if (shape.has_losses()) plan_.losses.include(action.micro_batch);
    }
  }

  // A message of `bytes` goes through a slot of the ring.
  void fit(int ring, std::int64_t bytes) {
    std::int64_t& slot_bytes = plan_.rings[static_cast<std::size_t>(ring)].slot_bytes;
    slot_bytes = std::max(slot_bytes, bytes);
  }

  void plan_input(const Action& action, ForwardUse use, ActionPlan& buffers) {
    const bool forward = action.op == Op::forward;
    const int from = forward ? virtual_stage(action.stage).previous : virtual_stage(action.stage).next;
    if (from < 0) return;
    const auto content = forward ? Channel::Kind::activation : Channel::Kind::gradient;
    const StagePlan& stage = plan_.stage_plan(action.stage);
    buffers.input_bytes = forward ? stage.before.of(use) : stage.after.backward;
    const int channel = table_.messages(action).consumes;
    if (channel >= 0) {
      const int slots = receive_slots_[static_cast<std::size_t>(channel)];
      buffers.input_ring = ring_for({Ring::Kind::receive, channel, -1, content, slots});
      fit(buffers.input_ring, buffers.input_bytes);
      buffers.input_slot = messages_[buffers.input_ring]++ % slots;
      return;
    }
    buffers.input_ring = ring_for({Ring::Kind::hand_over, -1, from, content, 0});
    auto& waiting = hand_overs_[buffers.input_ring];
    const auto parcel = waiting.in_flight.find(action.micro_batch);
    buffers.input_slot = parcel->second;
    waiting.numbers.give_back(parcel->second);
    waiting.in_flight.erase(parcel);
  }

  void plan_output(const Action& action, ForwardUse use, ActionPlan& buffers) {
    const bool forward = action.op == Op::forward;
    const int to = forward ? virtual_stage(action.stage).next : virtual_stage(action.stage).previous;
    if (to < 0) return;
    const auto content = forward ? Channel::Kind::activation : Channel::Kind::gradient;
    const StagePlan& stage = plan_.stage_plan(action.stage);
    buffers.output_bytes = forward ? stage.after.of(use) : stage.before.backward;
    const int channel = table_.messages(action).produces;
    if (channel >= 0) {
      buffers.output_ring = ring_for({Ring::Kind::send, channel, -1, content, kSendSlots});
      fit(buffers.output_ring, buffers.output_bytes);
      buffers.output_slot = messages_[buffers.output_ring]++ % kSendSlots;
      return;
    }
    buffers.output_ring = ring_for({Ring::Kind::hand_over, -1, action.stage, content, 0});
    fit(buffers.output_ring, buffers.output_bytes);
    auto& waiting = hand_overs_[buffers.output_ring];
    // The input's slot was given back above, but is read while this output is written: never the same buffer, because
    // input and output of one action belong to different rings.
    buffers.output_slot = waiting.numbers.take();
    waiting.in_flight[action.micro_batch] = buffers.output_slot;
    Ring& ring = plan_.rings[static_cast<std::size_t>(buffers.output_ring)];
    ring.slots = std::max(ring.slots, waiting.numbers.count());
  }

  using Key = std::pair<int, int>;  // (stage, micro-batch)

  void take_slots(const Action& action, ActionPlan& buffers) {
    IndexOfLifetime pools = plan_.stage_plan(action.stage).pools;
    const Key key{action.stage, action.micro_batch};
    const auto take = [&](Lifetime lifetime) {
      if (pools[lifetime] < 0) return;
      buffers.slots[lifetime] = pool_numbers_[static_cast<std::size_t>(pools[lifetime])].take();
      held_[key][lifetime] = buffers.slots[lifetime];
    };
    if (action.op == Op::forward) {
      take(Lifetime::forward_to_input);
      take(Lifetime::forward_to_weight);
      return;
    }
    if (action.op != Op::backward_weight) take(Lifetime::input_to_weight);
    buffers.slots = held_[key];
  }

  void give_back_slots(const Action& action, IndexOfLifetime slots) {
    if (action.op == Op::forward) return;
    IndexOfLifetime pools = plan_.stage_plan(action.stage).pools;
    const Key key{action.stage, action.micro_batch};
    const auto give_back = [&](Lifetime lifetime) {
      if (pools[lifetime] < 0) return;
      pool_numbers_[static_cast<std::size_t>(pools[lifetime])].give_back(slots[lifetime]);
      held_[key][lifetime] = -1;
    };
    if (action.op != Op::backward_weight) give_back(Lifetime::forward_to_input);
    if (action.op != Op::backward_input) {
      give_back(Lifetime::forward_to_weight);
      give_back(Lifetime::input_to_weight);
      held_.erase(key);
    }
  }

  struct HandOver {
    SlotNumbers numbers;
    std::map<int, int> in_flight;  // micro-batch -> slot
  };

  const PlanRequest& request_;
  const ChannelTable& table_;
  const std::vector<int>& receive_slots_;
  RankPlan plan_;
  std::vector<SlotNumbers> pool_numbers_;
  std::map<int, int> messages_;         // ring -> messages so far in this list
  std::map<int, int> most_messages_;    // ring -> messages of the list that has most
  std::map<int, HandOver> hand_overs_;  // ring -> parcels between the two stages
  std::map<Key, IndexOfLifetime> held_;
};

}  // namespace

void MicroBatches::include(int mb) {
  first = count() == 0 ? mb : std::min(first, mb);
  end = std::max(end, mb + 1);
}

const StagePlan& RankPlan::stage_plan(int stage) const {
  const auto found = std::find_if(stages.begin(), stages.end(), [&](const StagePlan& s) { return s.stage == stage; });
  if (found == stages.end()) throw std::logic_error("virtual stage " + std::to_string(stage) + " is not on this rank");
  return *found;
}

std::vector<UnitRange> unit_ranges(const Placement& placement, const Partition& partition) {
  std::vector<UnitRange> of_model_stage;
  int unit = 0;
  for (const int count : partition) {
    of_model_stage.push_back({unit, unit + count});
    unit += count;
  }
  std::vector<UnitRange> ranges;
  for (const Placement::VirtualStage& stage : placement.stages) {
    ranges.push_back(of_model_stage[static_cast<std::size_t>(stage.model_stage)]);
  }
  return ranges;
}

Plan make_plan(const PlanRequest& request) {
  check_request(request);
  Plan plan;
  plan.request = request;
  if (request.flushless()) plan.window = window_of(request.schedule);
  std::vector<int> validation_queues;
  plan.validation = forward_only(request.schedule, request.batch.micro_batches, &validation_queues);
  plan.generation = forward_only(request.schedule, 1);
  const ChannelTable table(request.schedule.placement);
  const std::vector<int> slots = receive_slots(request, validation_queues);
  for (int r = 0; r < request.schedule.ranks; ++r) {
    RankPlanner planner(request, table, slots, r);
    plan.ranks.push_back(planner.finish(request.schedule.actions(r), plan.step_schedule().actions(r),
                                        plan.validation.actions(r), plan.generation.actions(r)));
  }
  plan.tied_sums = tied_sums(request.schedule.placement, request.partition, request.model);
  plan.channel_bytes.assign(table.channels().size(), 0);
  for (const RankPlan& rank : plan.ranks) {
    for (const Ring& ring : rank.rings) {
      if (ring.kind == Ring::Kind::hand_over) continue;
      std::int64_t& bytes = plan.channel_bytes[static_cast<std::size_t>(ring.channel)];
      bytes = std::max(bytes, ring.slot_bytes);
    }
  }
  return plan;
}

}  // namespace train_gpt
