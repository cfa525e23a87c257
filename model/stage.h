// A stage: a contiguous range of units on one rank, run micro-batch by micro-batch. It owns no memory: the plan gives
// it a slot per micro-batch for what must be kept, with three lifetimes that follow from the split backward:
//
//   F..I  what backward_input needs (unit inputs, qkv, log-sum-exp, LayerNorm statistics, pre-activations)
//   F..W  what only backward_weight needs of the forward (inputs of the linear layers; a unit that recomputes has none)
//   I..W  output gradients of the linear layers, held until backward_weight has used them
//
// A full backward is backward_input followed by backward_weight: one code path.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "model/boundary.h"
#include "model/config.h"
#include "model/parameters.h"

namespace train_gpt {

// What a stage with the whole head keeps. Streamed: nothing of the scores. It computes loss, dx and all of its
// parameter gradients in F, chunk by chunk (the (N,Vp) scores never exist). Stored: the scores' exponentials from F to
// W, or it repeats them if StageShape::recompute says so. A stage that holds only a part of the head always takes the
// stored form. The bits are the same in both: see unit_head.h.
enum class HeadForm : std::uint8_t { streamed, stored };

struct StageShape {
  ModelConfig model;
  int first_unit = 0;  // units [first_unit, last_unit)
  int last_unit = 0;
  std::int64_t B = 4;  // rows of a micro-batch
  std::int64_t T = 256;
  HeadForm head = HeadForm::streamed;
  HeadChunks chunks = HeadChunks::for_cpu;  // Device::head_chunks
  bool caches = false;  // generation keeps keys and values in StageSlots::cache, and runs new positions of row 0 alone
  std::vector<bool> recompute;  // per unit of the stage (empty: none): backward_input repeats the forward of these
                                // units, then everything but their input lives I..W only. Shards of the head repeat
                                // their scores in backward_weight. No effect on the embedding, which keeps nothing, and
                                // on a streamed head.
  bool has_embedding() const { return first_unit == 0; }
  bool has_shards() const { return last_unit > first_head_unit(model); }  // of the head, one or more
  bool has_losses() const { return last_unit == unit_count(model); }      // the last one
  bool streams_head() const {
    return head == HeadForm::streamed && has_losses() && first_unit <= first_head_unit(model);
  }
  std::int64_t rows() const { return B * T; }
};

// Bytes of the messages over one boundary (see boundary.h); 0 at the ends of the model.
struct MessageBytes {
  std::array<std::int64_t, 3> forward = {};  // by ForwardUse
  std::int64_t backward = 0;

  std::int64_t of(ForwardUse use) const { return forward[static_cast<std::size_t>(use)]; }
  std::int64_t most_forward() const { return *std::max_element(forward.begin(), forward.end()); }
};
// Between units unit-1 and unit of a model that the shape names.
MessageBytes message_bytes(const StageShape& shape, Precision precision, int unit);
// The same for generation, where a forward runs `positions` positions.
std::int64_t generation_bytes(const StageShape& shape, Precision precision, int unit, std::int64_t positions);

// Bytes of one slot of each lifetime, and of scratch shared by all stages of a rank. All multiples of 256.
struct StageBytes {
  std::int64_t forward_to_input = 0;   // F..I
  std::int64_t forward_to_weight = 0;  // F..W
  std::int64_t input_to_weight = 0;    // I..W
  std::int64_t scratch = 0;            // within one action
  std::int64_t cache = 0;              // from one token of generation to the next
};
// `trains`, `validates`: what the stage will run; without training it needs only scratch.
StageBytes stage_bytes(const StageShape& shape, Precision precision, bool trains = true, bool validates = true);

// Parameters and gradients of an action: arena bases of the rank, addressed through the layout. `low` is the
// activation-precision copy of the parameters (equal to `values` for fp32).
struct ParameterView {
  const ArenaLayout* layout = nullptr;
  const float* values = nullptr;
  const void* low = nullptr;
  float* gradients = nullptr;
  // The first micro-batch of a step (of a group) sets the gradients of the matrices, the others add to them: these
  // gradients need no zeros (GradientRange::set_by_first).
  bool first_micro_batch = false;
  const ArenaLayout* gradient_layout = nullptr;  // where gradients lie; null: where parameters do

  const ArenaLayout& of_gradients() const { return gradient_layout != nullptr ? *gradient_layout : *layout; }
};

// A range of the gradient arena to which a stage adds, and when: a streamed head in F, all others in W.
struct GradientRange {
  std::int64_t offset = 0;  // elements from the start of the gradient arena
  std::int64_t elements = 0;
  bool in_forward = false;
  bool set_by_first = false;  // needs no zeros: see ParameterView::first_micro_batch
  int unit = 0;               // of the model, whose F or W adds to it
};
std::vector<GradientRange> gradient_ranges(const StageShape& shape, const ArenaLayout& layout);

// The pointers of one action; unused ones may be null. The first four are messages, see boundary.h.
struct StageSlots {
  const void* input = nullptr;            // from the previous stage; read by F only (F keeps what it needs)
  void* output = nullptr;                 // for the next stage; written by F
  const void* output_gradient = nullptr;  // from the next stage; read by I only
  void* input_gradient = nullptr;         // for the previous stage; written by I
  void* forward_to_input = nullptr;
  void* forward_to_weight = nullptr;
  void* input_to_weight = nullptr;
  void* scratch = nullptr;
  const std::int32_t* tokens = nullptr;   // (B,T), first stage, F and W
  const std::int32_t* targets = nullptr;  // (B,T), stages with shards of the head, F, I and W; < 0: not a valid target
  float* losses = nullptr;                // (B,T), last stage, written by F
  float dloss = 0;  // gradient of the step's mean loss with respect to one token's, 1 / (valid targets of the step)
  // Generation: the last stage writes the scores (B,Vp) of one position of each row, at activation precision; targets
  // and losses are not used. Columns >= V are padding. A stage that caches runs positions first_position ..
  // logits_position of row 0 alone; its cache holds the positions before from earlier forwards.
  void* logits = nullptr;
  std::int64_t logits_position = 0;  // 0 .. T-1
  std::int64_t first_position = 0;
  void* cache = nullptr;
};

// The kind of pass through the units of a stage, which decides where their tensors lie.
enum class Pass : std::uint8_t { forward, validation, generation, backward };

struct HeadUnit;    // see unit_head.h
struct BoundStage;  // see stage.cpp

class Stage {
 public:
  // Checks the shape; throws std::invalid_argument.
  Stage(Device& device, StageShape shape);
  ~Stage();
  Stage(Stage&& other) noexcept;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Other uses than training run forwards alone, which write scratch and nothing of the lifetimes F..I and F..W.
  void forward(const StageSlots& slots, const ParameterView& parameters, ForwardUse use);
  void backward_input(const StageSlots& slots, const ParameterView& parameters);
  // `after_unit(u)` is called once u and all units above it have added to their gradients, from the last unit of the
  // stage to its first; the shards of the head come together, as the first of them.
  void backward_weight(const StageSlots& slots, const ParameterView& parameters,
                       const std::function<void(int unit)>& after_unit = {});

  const StageShape& shape() const { return shape_; }

 private:
  void forward_head(const HeadUnit& head, const StageSlots& slots, ForwardUse use);

  Device& device_;
  StageShape shape_;
  std::unique_ptr<BoundStage> bound_;  // filled anew by every action, without allocating
};

}  // namespace train_gpt
