// Where the tensors of the head's shards lie, by pass.
//
//   training, a part of the head or a stored one
//     F..I  x, LayerNorm's statistics (shard 0), dX (shard K-1: F ends with it)
//     F..W  X, m'_k, E where it is kept, m and s (shard K-1)
//     I..W  LayerNorm's gradients (shard 0), m and s (others: they come with dX)
//   streamed: dx F..I; everything else is scratch
//   validation and generation: scratch, and the messages
#include <algorithm>

#include "model/unit_head.h"

namespace train_gpt {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

class HeadBinder {
 public:
  HeadBinder(const UnitSizes& sizes, const StageShape& shape, Pass pass, const StageSlots& slots,
             const ParameterView& parameters, const UnitBuffers& memory, std::vector<HeadShard>& shards)
      : sizes_(sizes),
        shape_(shape),
        pass_(pass),
        slots_(slots),
        parameters_(parameters),
        memory_(memory),
        shards_(shards),
        head_(first_head_unit(shape.model)),
        first_unit_(std::max(shape.first_unit, head_)) {}

  HeadUnit operator()() {
    unit_.sizes = sizes_;
    unit_.first = first_unit_ == head_;
    unit_.last = shape_.has_losses();
    unit_.streamed = shape_.streams_head();
    unit_.chunk = head_chunk_rows(sizes_.chunks, sizes_.rows(), sizes_.Vp, vocabulary_shard(shape_.model, 0).width);
    if (unit_.first)
      unit_.norm = affine(sizes_, parameters_, tensor_index(shape_.model, TensorKind::lnfw),
                          tensor_index(shape_.model, TensorKind::lnfb));
    unit_.targets = slots_.targets;
    unit_.losses = slots_.losses;
    unit_.dloss = slots_.dloss;
    name_shards();
    unit_.shards = shards_;
    if (pass_ == Pass::validation)
      bind_validation();
    else if (pass_ == Pass::generation)
      bind_generation();
    else if (unit_.streamed)
      bind_streamed();
    else
      bind_training();
    return unit_;
  }

 private:
  std::int64_t vector() const { return sizes_.rows() * kFloat; }
  std::int64_t matrix() const { return sizes_.activation_bytes(sizes_.C); }
  bool half() const { return sizes_.element != kFloat; }
  int last_unit() const { return shape_.last_unit; }

  BoundarySizes boundary_sizes() const { return {sizes_.B, sizes_.T, half() ? Precision::bf16 : Precision::fp32}; }

  void name_shards() {
    for (int u = first_unit_; u < last_unit(); ++u) {
      HeadShard shard;
      const int k = u - head_;
      shard.columns = vocabulary_shard(shape_.model, k);
      shard.classifier.weight = parameter(sizes_, parameters_, matrix_of(k));
      shard.classifier.dweight = head_gradient(parameters_, matrix_of(k));
      shard.classifier.first = parameters_.first_micro_batch;
      widest_ = std::max(widest_, shard.columns.width);
      shards_.push_back(shard);
    }
  }

  int matrix_of(int k) const {
    return tensor_index(shape_.model, shape_.model.tied ? TensorKind::wte : TensorKind::headw, k);
  }

  static float* head_gradient(const ParameterView& view, int tensor) {
    if (view.gradients == nullptr) return nullptr;
    const ArenaLayout::Entry& entry = *view.of_gradients().find(tensor);
    return view.gradients + (entry.head_gradient >= 0 ? entry.head_gradient : entry.offset);
  }

  bool recomputes(std::size_t shard) const {
    const std::size_t unit = shard + static_cast<std::size_t>(first_unit_ - shape_.first_unit);
    return !shape_.recompute.empty() && shape_.recompute[unit];
  }

  static void* piece(const void* message, const Boundary& boundary, int tensor) {
    if (message == nullptr) return nullptr;
    return static_cast<char*>(const_cast<void*>(message)) + boundary.offset(tensor);
  }

  // X, m, s, z and A of a message between shards.
  HeadState state_in(const void* message, int unit, ForwardUse use) const {
    const Boundary boundary = forward_boundary(shape_.model, boundary_sizes(), unit, use);
    HeadState state;
    state.normed = piece(message, boundary, 0);
    if (use == ForwardUse::generation) {
      state.logits = piece(message, boundary, 1);
      state.logit_columns = boundary[1].columns;
      return state;
    }
    const auto floats = [&](int tensor) { return static_cast<float*>(piece(message, boundary, tensor)); };
    state.fold = {floats(1), floats(2), floats(3), use == ForwardUse::training ? floats(4) : nullptr};
    return state;
  }

  void bind_messages(ForwardUse use) {
    if (!unit_.first) unit_.before = state_in(slots_.input, first_unit_, use);
    if (!unit_.last) unit_.state = state_in(slots_.output, last_unit(), use);
  }

  void take_fold(Slot& statistics, Slot& at_target) {
    unit_.state.fold.largest = statistics.take_floats(sizes_.rows());
    unit_.state.fold.sum = statistics.take_floats(sizes_.rows());
    unit_.state.fold.at_target = at_target.take_floats(sizes_.rows());
  }

  void take_scores() { unit_.scores = memory_.scratch->take_floats(unit_.chunk * widest_); }

  void bind_validation() {
    Slot& scratch = *memory_.scratch;
    bind_messages(ForwardUse::validation);
    if (unit_.first) unit_.norm_tensors = take_norm_tensors(sizes_, {&scratch, &scratch, &scratch, &scratch});
    if (unit_.last) {
      unit_.state.normed = scratch.take(matrix());
      take_fold(scratch, scratch);
    }
    take_scores();
  }

  void bind_generation() {
    Slot& scratch = *memory_.scratch;
    bind_messages(ForwardUse::generation);
    if (unit_.first) {
      unit_.norm_tensors = take_norm_tensors(sizes_, {&scratch, &scratch, &scratch, &scratch});
      unit_.all_normed = scratch.take(matrix());
    }
    if (unit_.last) {
      unit_.state.normed = scratch.take(sizes_.B * sizes_.C * sizes_.element);
      unit_.state.logits = slots_.logits;
      unit_.state.logit_columns = sizes_.Vp;
    }
    unit_.shard_logits = scratch.take(sizes_.B * widest_ * sizes_.element);
  }

  void bind_streamed() {
    Slot& scratch = *memory_.scratch;
    unit_.dx = memory_.for_input->take(matrix());
    unit_.norm_tensors = take_norm_tensors(sizes_, {&scratch, &scratch, &scratch, &scratch});
    unit_.state.normed = scratch.take(matrix());
    take_fold(scratch, scratch);
    unit_.gradient = unit_.state.fold.mixture = scratch.take_floats(sizes_.rows() * sizes_.C);
    take_rounded_gradient();
    if (half()) take_scores();
    for (HeadShard& shard : shards_) {
      shard.largest_then = scratch.take_floats(unit_.chunk);
      shard.kept = scratch.take(unit_.chunk * shard.columns.width * sizes_.element);
    }
  }

  void take_rounded_gradient() { unit_.rounded_gradient = half() ? memory_.scratch->take(matrix()) : unit_.gradient; }

  void bind_training() {
    bind_messages(ForwardUse::training);
    unit_.next_normed = unit_.last ? nullptr : unit_.state.normed;
    if (unit_.first) unit_.norm_tensors = take_norm_tensors(sizes_, memory_);
    unit_.state.normed = memory_.for_weight->take(matrix());
    bind_gradient();
    bool recomputes_some = false;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      shards_[i].largest_then = memory_.for_weight->take_floats(sizes_.rows());
      if (recomputes(i))
        recomputes_some = true;
      else
        shards_[i].kept = memory_.for_weight->take(sizes_.rows() * shards_[i].columns.width * sizes_.element);
    }
    if (recomputes_some) unit_.exponentials = memory_.scratch->take(unit_.chunk * widest_ * sizes_.element);
    if (half()) take_scores();
  }

  // dX, and the m and s of all shards, which W reads: with shard K-1 they are those of F, else they come with dX.
  void bind_gradient() {
    SoftmaxFold& fold = unit_.state.fold;
    if (unit_.last) {
      take_fold(*memory_.for_weight, *memory_.scratch);
      fold.mixture = memory_.for_input->take_floats(sizes_.rows() * sizes_.C);
      unit_.from_next.mixture = fold.mixture;
    } else {
      float* const largest = memory_.gradients->take_floats(sizes_.rows());
      float* const sum = memory_.gradients->take_floats(sizes_.rows());
      unit_.from_next = gradient_in(slots_.output_gradient, last_unit());
      if (pass_ == Pass::backward) fold = {.largest = largest, .sum = sum};
    }
    if (unit_.first) {
      unit_.gradient = memory_.scratch->take_floats(sizes_.rows() * sizes_.C);
      take_rounded_gradient();
    } else {
      unit_.to_previous = gradient_in(slots_.input_gradient, first_unit_);
      unit_.gradient = unit_.to_previous.mixture;
    }
  }

  // dX, m and s of a message between shards.
  SoftmaxFold gradient_in(const void* message, int unit) const {
    const Boundary boundary = backward_boundary(shape_.model, boundary_sizes(), unit);
    const auto floats = [&](int tensor) { return static_cast<float*>(piece(message, boundary, tensor)); };
    return {.largest = floats(1), .sum = floats(2), .mixture = floats(0)};
  }

  const UnitSizes& sizes_;
  const StageShape& shape_;
  Pass pass_;
  const StageSlots& slots_;
  const ParameterView& parameters_;
  const UnitBuffers& memory_;
  std::vector<HeadShard>& shards_;
  int head_;
  int first_unit_;
  std::int64_t widest_ = 0;
  HeadUnit unit_;
};

}  // namespace

HeadUnit bind_head(const UnitSizes& sizes, const StageShape& shape, Pass pass, const StageSlots& slots,
                   const ParameterView& parameters, const UnitBuffers& memory, std::vector<HeadShard>& shards) {
  return HeadBinder(sizes, shape, pass, slots, parameters, memory, shards)();
}

}  // namespace train_gpt
