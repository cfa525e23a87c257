#include "model/stage.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <variant>

#include "model/unit.h"
#include "model/unit_head.h"

namespace train_gpt {

// The units of a stage with the pointers of one action, and the bytes that they take from each slot.
struct BoundStage {
  using Unit = std::variant<EmbeddingUnit, AttentionUnit, MlpUnit, HeadUnit>;
  struct Entry {
    Unit unit;
    void* input = nullptr;            // written by the unit before; null: this unit reads the stage's input
    void* output_gradient = nullptr;  // where the next unit writes its dx
  };
  std::vector<Entry> entries;     // the shards of the head are one of them
  std::vector<HeadShard> shards;  // the parts of that entry
  StageBytes used;
};

namespace {

bool is_alone(Pass pass) { return pass == Pass::validation || pass == Pass::generation; }

// The rows that the units of a pass work on: a micro-batch, or the new positions of row 0.
UnitSizes pass_sizes(const StageShape& shape, Precision precision, Pass pass, const StageSlots& slots) {
  UnitSizes sizes = unit_sizes(shape, precision);
  if (pass != Pass::generation || !shape.caches) return sizes;
  sizes.B = 1;
  sizes.T = slots.logits_position + 1 - slots.first_position;
  return sizes;
}

// Hands the slots out to the units of one stage, in order. All actions of a micro-batch have the same slots, and so
// find each tensor at the same place.
class Binder {
 public:
  Binder(const StageShape& shape, Precision precision, const StageSlots& slots, const ParameterView& parameters,
         Pass pass)
      : shape_(shape),
        sizes_(pass_sizes(shape, precision, pass, slots)),
        slots_(slots),
        parameters_(parameters),
        pass_(pass),
        to_input_(is_alone(pass) ? nullptr : slots.forward_to_input),
        to_weight_(is_alone(pass) ? nullptr : slots.forward_to_weight),
        gradients_(pass == Pass::backward ? slots.input_to_weight : nullptr),
        scratch_(slots.scratch),
        cache_(slots.cache) {}

  void bind(BoundStage& bound) {
    bound.entries.clear();
    bound.shards.clear();
    // The shards of the head are bound together, as the last entry.
    const int layers = std::min(shape_.last_unit, first_head_unit(shape_.model)) - shape_.first_unit;
    const int count = std::max(0, layers) + (shape_.has_shards() ? 1 : 0);
    if (count > 1 && some_input_is_not_kept()) stream_ = scratch_.take(boundary());
    std::int64_t scratch_used = scratch_.used();
    for (int k = 0; k < count; ++k) {
      Slot scratch = scratch_;  // units of one action use it one after the other
      bound.entries.push_back(k < layers ? bind_layer(k, scratch) : bind_shards(k, bound.shards, scratch));
      scratch_used = std::max(scratch_used, scratch.used());
    }
    bound.used = {to_input_.used(), to_weight_.used(), gradients_.used(), scratch_used, cache_.used()};
  }

 private:
  std::int64_t boundary() const { return sizes_.activation_bytes(sizes_.C); }

  bool caches() const { return pass_ == Pass::generation && shape_.caches; }

  bool recomputes(int k) const { return !shape_.recompute.empty() && shape_.recompute[static_cast<std::size_t>(k)]; }

  // Layers use their scratch in the backward alone.
  UnitBuffers memory(int k, Slot& scratch) {
    if (is_alone(pass_)) return {&scratch, &scratch, &unused_, &unused_};
    if (pass_ == Pass::forward && recomputes(k)) return {&scratch, &scratch, &unused_, &unused_};
    if (pass_ == Pass::forward) return {&to_input_, &to_weight_, &unused_, &unused_};
    if (recomputes(k)) return {&scratch, &gradients_, &gradients_, &scratch};
    return {&to_input_, &to_weight_, &gradients_, &scratch};
  }

  // The input of a unit after the first, in a forward.
  bool some_input_is_not_kept() const { return is_alone(pass_) || (pass_ == Pass::forward && shape_.streams_head()); }

  // The place of unit k's input: in F..I if a backward will need it, else in scratch shared by the whole stage (a unit
  // may write its output over its input).
  void* place_input(int k, bool needed_by_backward) {
    if (!is_alone(pass_) && needed_by_backward) return to_input_.take(boundary());
    return k == 0 ? nullptr : stream_;
  }

  template <class UnitType>
  BoundStage::Entry entry_of_layer(int k, UnitType unit) {
    BoundStage::Entry entry;
    entry.input = place_input(k, true);
    if (!is_alone(pass_)) entry.output_gradient = gradients_.take(boundary());
    unit.x = entry.input == nullptr ? slots_.input : entry.input;
    unit.dy = entry.output_gradient;
    unit.recomputes = recomputes(k);
    entry.unit = unit;
    return entry;
  }

  BoundStage::Entry bind_layer(int k, Slot& scratch) {
    const int u = shape_.first_unit + k;
    const std::int64_t layer = unit_layer(shape_.model, u);
    if (unit_kind(shape_.model, u) == UnitKind::attention) {
      AttentionUnit unit = bind_attention(sizes_, shape_.model, layer, parameters_, memory(k, scratch));
      if (caches()) {
        unit.qkv_out = cache_.take(shape_.T * 3 * sizes_.C * sizes_.element);
        unit.first_position = slots_.first_position;
      }
      return entry_of_layer(k, unit);
    }
    if (unit_kind(shape_.model, u) == UnitKind::mlp) {
      const bool keeps_pre = !is_alone(pass_) && !recomputes(k);
      return entry_of_layer(k, bind_mlp(sizes_, shape_.model, layer, parameters_, memory(k, scratch), keeps_pre));
    }
    BoundStage::Entry entry;
    if (!is_alone(pass_)) entry.output_gradient = gradients_.take(boundary());
    EmbeddingUnit unit = bind_embedding(sizes_, shape_.model, parameters_);
    unit.tokens = slots_.tokens;
    unit.first_position = caches() ? slots_.first_position : 0;
    unit.dy = entry.output_gradient;
    entry.unit = unit;
    return entry;
  }

  BoundStage::Entry bind_shards(int k, std::vector<HeadShard>& shards, Slot& scratch) {
    BoundStage::Entry entry;
    if (shape_.first_unit <= first_head_unit(shape_.model)) entry.input = place_input(k, !shape_.streams_head());
    const UnitBuffers kept = {&to_input_, &to_weight_, &gradients_, &scratch};
    HeadUnit unit = bind_head(sizes_, shape_, pass_, slots_, parameters_, kept, shards);
    unit.x = entry.input == nullptr ? slots_.input : entry.input;
    entry.unit = unit;
    return entry;
  }

  const StageShape& shape_;
  UnitSizes sizes_;
  const StageSlots& slots_;
  const ParameterView& parameters_;
  Pass pass_;
  Slot to_input_, to_weight_, gradients_, scratch_, cache_;
  Slot unused_;
  void* stream_ = nullptr;
};

void check_shape(const StageShape& shape) {
  const int units = unit_count(shape.model);
  if (shape.first_unit < 0 || shape.first_unit >= shape.last_unit || shape.last_unit > units)
    throw std::invalid_argument("stage of units [" + std::to_string(shape.first_unit) + ", " +
                                std::to_string(shape.last_unit) + "): must be a part of [0, " + std::to_string(units) +
                                ") and not empty");
  if (shape.B < 1)
    throw std::invalid_argument("--micro-batch-size " + std::to_string(shape.B) + ": must be at least 1");
  if (shape.T < 1 || shape.T > shape.model.max_seq_len)
    throw std::invalid_argument("--seq-len " + std::to_string(shape.T) + ": must be from 1 to the model's longest " +
                                "sequence, " + std::to_string(shape.model.max_seq_len));
  const auto flags = static_cast<int>(shape.recompute.size());
  if (flags != 0 && flags != shape.last_unit - shape.first_unit)
    throw std::invalid_argument("recomputation: " + std::to_string(flags) + " flags for a stage of " +
                                std::to_string(shape.last_unit - shape.first_unit) + " units");
}

}  // namespace

std::int64_t generation_bytes(const StageShape& shape, Precision precision, int unit, std::int64_t positions) {
  if (unit <= 0 || unit >= unit_count(shape.model)) return 0;
  const BoundarySizes sizes = {shape.caches ? 1 : shape.B, positions, precision};
  return forward_boundary(shape.model, sizes, unit, ForwardUse::generation).bytes();
}

MessageBytes message_bytes(const StageShape& shape, Precision precision, int unit) {
  MessageBytes bytes;
  if (unit <= 0 || unit >= unit_count(shape.model)) return bytes;
  const BoundarySizes sizes = {shape.B, shape.T, precision};
  for (const ForwardUse use : {ForwardUse::training, ForwardUse::validation})
    bytes.forward[static_cast<std::size_t>(use)] = forward_boundary(shape.model, sizes, unit, use).bytes();
  bytes.forward[static_cast<std::size_t>(ForwardUse::generation)] = generation_bytes(shape, precision, unit, shape.T);
  bytes.backward = backward_boundary(shape.model, sizes, unit).bytes();
  return bytes;
}

StageBytes stage_bytes(const StageShape& shape, Precision precision, bool trains, bool validates) {
  check_shape(shape);
  StageBytes most;
  StageSlots no_slots;
  no_slots.logits_position = shape.T - 1;
  const ParameterView no_parameters;
  BoundStage bound;
  for (const Pass pass : {Pass::forward, Pass::validation, Pass::generation, Pass::backward}) {
    if (is_alone(pass) ? !validates : !trains) continue;
    Binder(shape, precision, no_slots, no_parameters, pass).bind(bound);
    const StageBytes& used = bound.used;
    most.forward_to_input = std::max(most.forward_to_input, used.forward_to_input);
    most.forward_to_weight = std::max(most.forward_to_weight, used.forward_to_weight);
    most.input_to_weight = std::max(most.input_to_weight, used.input_to_weight);
    most.scratch = std::max(most.scratch, used.scratch);
    most.cache = std::max(most.cache, used.cache);
  }
  return most;
}

Stage::Stage(Device& device, StageShape shape)
    : device_(device), shape_(std::move(shape)), bound_(std::make_unique<BoundStage>()) {
  check(shape_.model);
  check_shape(shape_);
  if (shape_.chunks != device_.head_chunks())
    throw std::logic_error("the stage's plan has chunks of the head for another device (StageShape::chunks)");
}

Stage::~Stage() = default;
Stage::Stage(Stage&& other) noexcept = default;

void Stage::forward(const StageSlots& slots, const ParameterView& parameters, ForwardUse use) {
  const BoundStage& bound = *bound_;
  constexpr std::array<Pass, 3> kPasses = {Pass::forward, Pass::validation, Pass::generation};
  const Pass pass = kPasses[static_cast<std::size_t>(use)];
  Binder(shape_, device_.precision(), slots, parameters, pass).bind(*bound_);
  const std::int64_t boundary =
      pass_sizes(shape_, device_.precision(), pass, slots).activation_bytes(shape_.model.hidden);
  const BoundStage::Entry& first = bound.entries.front();
  if (!shape_.has_embedding() && first.input != nullptr) device_.copy(first.input, slots.input, boundary);
  for (std::size_t k = 0; k < bound.entries.size(); ++k) {
    void* y = k + 1 < bound.entries.size() ? bound.entries[k + 1].input : slots.output;
    const BoundStage::Unit& unit = bound.entries[k].unit;
    if (const auto* embedding = std::get_if<EmbeddingUnit>(&unit)) train_gpt::forward(device_, *embedding, y);
    if (const auto* attention = std::get_if<AttentionUnit>(&unit)) train_gpt::forward(device_, *attention, y);
    if (const auto* mlp = std::get_if<MlpUnit>(&unit)) train_gpt::forward(device_, *mlp, y);
    if (const auto* head = std::get_if<HeadUnit>(&unit)) forward_head(*head, slots, use);
  }
}

void Stage::forward_head(const HeadUnit& head, const StageSlots& slots, ForwardUse use) {
  if (use == ForwardUse::training)
    head_forward(device_, head);
  else if (use == ForwardUse::validation)
    head_validate(device_, head);
  else
    head_logits(device_, head, shape_.caches ? head.sizes.T - 1 : slots.logits_position);
}

void Stage::backward_input(const StageSlots& slots, const ParameterView& parameters) {
  const BoundStage& bound = *bound_;
  Binder(shape_, device_.precision(), slots, parameters, Pass::backward).bind(*bound_);
  const std::int64_t boundary = unit_sizes(shape_, device_.precision()).activation_bytes(shape_.model.hidden);
  if (!shape_.has_shards()) device_.copy(bound.entries.back().output_gradient, slots.output_gradient, boundary);
  for (std::size_t k = bound.entries.size(); k-- > 0;) {
    void* dx = k > 0 ? bound.entries[k - 1].output_gradient : slots.input_gradient;
    const BoundStage::Unit& unit = bound.entries[k].unit;
    if (const auto* attention = std::get_if<AttentionUnit>(&unit)) train_gpt::backward_input(device_, *attention, dx);
    if (const auto* mlp = std::get_if<MlpUnit>(&unit)) train_gpt::backward_input(device_, *mlp, dx);
    if (const auto* head = std::get_if<HeadUnit>(&unit)) train_gpt::backward_input(device_, *head, dx);
  }
}

void Stage::backward_weight(const StageSlots& slots, const ParameterView& parameters,
                            const std::function<void(int unit)>& after_unit) {
  const BoundStage& bound = *bound_;
  Binder(shape_, device_.precision(), slots, parameters, Pass::backward).bind(*bound_);
  for (std::size_t k = bound.entries.size(); k-- > 0;) {
    const BoundStage::Unit& unit = bound.entries[k].unit;
    if (const auto* embedding = std::get_if<EmbeddingUnit>(&unit)) train_gpt::backward_weight(device_, *embedding);
    if (const auto* attention = std::get_if<AttentionUnit>(&unit)) train_gpt::backward_weight(device_, *attention);
    if (const auto* mlp = std::get_if<MlpUnit>(&unit)) train_gpt::backward_weight(device_, *mlp);
    if (const auto* head = std::get_if<HeadUnit>(&unit)) train_gpt::backward_weight(device_, *head);
    if (after_unit) after_unit(shape_.first_unit + static_cast<int>(k));
  }
}

}  // namespace train_gpt
