#include "test/model/stage_chain.h"

#include <algorithm>
#include <limits>

using namespace train_gpt;

struct StageChain::InFlight {
  GuardedSlot forward_to_input, forward_to_weight, input_to_weight;
};

StageChain::StageChain(Device& device, const ChainShape& shape) : device_(device), model_(shape.model) {
  int first = 0;
  std::int64_t scratch = 0;
  for (const int units : shape.cut) {
    StageShape stage;
    stage.model = shape.model;
    stage.first_unit = first;
    stage.last_unit = first + units;
    stage.B = shape.B;
    stage.T = shape.T;
    stage.head = shape.head;
    stage.chunks = device.head_chunks();
    if (!shape.recompute.empty())
      stage.recompute.assign(shape.recompute.begin() + first, shape.recompute.begin() + first + units);
    std::vector<bool> held(static_cast<std::size_t>(unit_count(model_)));
    std::fill(held.begin() + first, held.begin() + first + units, true);
    Rank rank = {.stage = Stage(device, stage),
                 .bytes = stage_bytes(stage, device.precision()),
                 .before = message_bytes(stage, device.precision(), stage.first_unit),
                 .after = message_bytes(stage, device.precision(), stage.last_unit),
                 .layout = arena_layout(model_, held),
                 .values = {},
                 .gradients = {}};
    // NaN between the tensors: nothing may read it.
    rank.values.assign(static_cast<std::size_t>(rank.layout.elements), std::numeric_limits<float>::quiet_NaN());
    rank.gradients.assign(static_cast<std::size_t>(rank.layout.gradient_elements), 0.0F);
    scratch = std::max(scratch, rank.bytes.scratch);
    ranks_.push_back(std::move(rank));
    first += units;
  }
  scratch_ = GuardedSlot(scratch);
  const std::int64_t workspace =
      device.workspace_bytes(shape.B, shape.T, model_.hidden, model_.heads, model_.padded_vocab());
  workspace_ = device.allocate(std::max<std::int64_t>(256, workspace));
  device.use_workspace(workspace_, workspace);
}

StageChain::~StageChain() { device_.release(workspace_); }

void StageChain::set_parameters(const std::function<void(float*, const TensorInfo&)>& fill) {
  const std::vector<TensorInfo> tensors = model_tensors(model_);
  for (Rank& rank : ranks_)
    for (const ArenaLayout::Entry& entry : rank.layout.entries)
      fill(rank.values.data() + entry.offset, tensors[static_cast<std::size_t>(entry.tensor)]);
}

std::vector<StageChain::InFlight> StageChain::new_flights() const {
  std::vector<InFlight> flights;
  for (const Rank& rank : ranks_)
    flights.push_back({GuardedSlot(rank.bytes.forward_to_input), GuardedSlot(rank.bytes.forward_to_weight),
                       GuardedSlot(rank.bytes.input_to_weight)});
  return flights;
}

StageSlots StageChain::slots_of(InFlight& flight, const MicroBatch& batch) {
  for (GuardedSlot* slot : {&flight.forward_to_input, &flight.forward_to_weight, &flight.input_to_weight, &scratch_})
    slot->relocate();
  scratch_.poison();
  StageSlots slots;
  slots.scratch = scratch_.data();
  slots.tokens = batch.tokens.data();
  slots.targets = batch.targets.data();
  slots.dloss = dloss_;
  return slots;
}

void StageChain::forward(std::vector<InFlight>& flights, const MicroBatch& batch, const StageSlots& results,
                         ForwardUse use) {
  GuardedSlot input;
  for (std::size_t s = 0; s < ranks_.size(); ++s) {
    Rank& rank = ranks_[s];
    GuardedSlot output(rank.after.of(use));
    StageSlots slots = slots_of(flights[s], batch);
    slots.losses = results.losses;
    slots.logits = results.logits;
    slots.logits_position = results.logits_position;
    if (s > 0) slots.input = input.data();
    if (s + 1 < ranks_.size()) slots.output = output.data();
    if (use == ForwardUse::training) {
      slots.forward_to_input = flights[s].forward_to_input.data();
      slots.forward_to_weight = flights[s].forward_to_weight.data();
    }
    ParameterView view = rank.view();
    if (use != ForwardUse::training) view.gradients = nullptr;
    rank.stage.forward(slots, view, use);
    input = std::move(output);
  }
}

void StageChain::backward_input(std::vector<InFlight>& flights, const MicroBatch& batch) {
  GuardedSlot gradient;
  for (std::size_t s = ranks_.size(); s-- > 0;) {
    Rank& rank = ranks_[s];
    GuardedSlot next(rank.before.backward);
    StageSlots slots = slots_of(flights[s], batch);
    slots.tokens = nullptr;
    if (s + 1 < ranks_.size()) slots.output_gradient = gradient.data();
    if (s > 0) slots.input_gradient = next.data();
    slots.forward_to_input = flights[s].forward_to_input.data();
    slots.forward_to_weight = flights[s].forward_to_weight.data();
    slots.input_to_weight = flights[s].input_to_weight.data();
    rank.stage.backward_input(slots, rank.view());
    gradient = std::move(next);
    flights[s].forward_to_input.poison();
  }
}

void StageChain::backward_weight(std::vector<InFlight>& flights, const MicroBatch& batch) {
  for (std::size_t s = 0; s < ranks_.size(); ++s) {
    StageSlots slots = slots_of(flights[s], batch);
    slots.forward_to_weight = flights[s].forward_to_weight.data();
    slots.input_to_weight = flights[s].input_to_weight.data();
    ranks_[s].stage.backward_weight(slots, ranks_[s].view());
  }
}

std::vector<float> StageChain::train(std::span<const MicroBatch> batches, float dloss, bool deferred) {
  for (Rank& rank : ranks_) std::fill(rank.gradients.begin(), rank.gradients.end(), 0.0F);
  dloss_ = dloss;
  const std::size_t per_batch = batches.front().targets.size();
  std::vector<float> losses(batches.size() * per_batch, std::numeric_limits<float>::quiet_NaN());
  std::vector<std::vector<InFlight>> flights(batches.size());
  const auto run_forward = [&](std::size_t i) {
    flights[i] = new_flights();
    forward(flights[i], batches[i], {.losses = &losses[i * per_batch]}, ForwardUse::training);
  };
  for (std::size_t i = 0; i < batches.size(); ++i) {
    run_forward(i);
    if (deferred) continue;
    backward_input(flights[i], batches[i]);
    backward_weight(flights[i], batches[i]);
  }
  if (!deferred) return losses;
  for (std::size_t i = 0; i < batches.size(); ++i) backward_input(flights[i], batches[i]);
  for (std::size_t i = 0; i < batches.size(); ++i) backward_weight(flights[i], batches[i]);
  return losses;
}

void StageChain::forward_alone(const MicroBatch& batch, const StageSlots& results, ForwardUse use) {
  std::vector<InFlight> none(ranks_.size());
  for (InFlight& flight : none) flight = {GuardedSlot(0), GuardedSlot(0), GuardedSlot(0)};
  forward(none, batch, results, use);
}

std::vector<float> StageChain::validate(const MicroBatch& batch) {
  std::vector<float> losses(batch.targets.size(), std::numeric_limits<float>::quiet_NaN());
  forward_alone(batch, {.losses = losses.data()}, ForwardUse::validation);
  return losses;
}

std::vector<float> StageChain::logits(const MicroBatch& batch, std::int64_t position) {
  const StageShape& shape = ranks_.front().stage.shape();
  GuardedSlot logits(shape.B * model_.padded_vocab() * std::int64_t{sizeof(float)});
  forward_alone(batch, {.logits = logits.data(), .logits_position = position}, ForwardUse::generation);
  const auto* begin = static_cast<const float*>(logits.data());
  return {begin, begin + shape.B * model_.padded_vocab()};
}

std::vector<std::vector<float>> StageChain::gradients() const {
  const std::vector<TensorInfo> tensors = model_tensors(model_);
  std::vector<std::vector<float>> result(tensors.size());
  const auto add = [&](const Rank& rank, int tensor, std::int64_t offset) {
    std::vector<float>& sum = result[static_cast<std::size_t>(tensor)];
    sum.resize(static_cast<std::size_t>(tensors[static_cast<std::size_t>(tensor)].elements), 0.0F);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rank.gradients[static_cast<std::size_t>(offset) + i];
  };
  for (const Rank& rank : ranks_) {
    for (const ArenaLayout::Entry& entry : rank.layout.entries) {
      add(rank, entry.tensor, entry.offset);
      if (entry.head_gradient >= 0) add(rank, entry.tensor, entry.head_gradient);
    }
  }
  return result;
}
