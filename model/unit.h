// Units: Embedding, Attention, Mlp, and the head's shards (unit_head.h). Each has a forward, a backward_input (dx, on
// the critical path of a pipeline) and a backward_weight (parameter gradients, deferrable), as free functions over a
// struct that holds the sizes, the parameters and the tensors of one micro-batch. A unit's bits depend on its sizes,
// parameters and input alone: never on the stage it is in, on what is kept and what recomputed, or on the form of the
// head.
//
// Tensors live in slots (see stage.h). The bind function of a unit alone decides which slot a tensor belongs to: it
// takes the tensors from the slots in a fixed order. stage_bytes runs the same functions on empty slots, so that the
// planned bytes are the used ones.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "model/config.h"
#include "model/parameters.h"
#include "model/stage.h"

namespace train_gpt {

struct UnitSizes {
  std::int64_t B = 0, T = 0, C = 0, NH = 0, V = 0, Vp = 0;
  std::int64_t element = 4;  // bytes of one element of an activation
  HeadChunks chunks = HeadChunks::for_cpu;

  std::int64_t rows() const { return B * T; }  // N
  std::int64_t activation_bytes(std::int64_t columns) const { return rows() * columns * element; }
};
UnitSizes unit_sizes(const StageShape& shape, Precision precision);

// A slot that hands out consecutive 256-byte aligned pieces. Without memory it only counts, and hands out null
// pointers.
class Slot {
 public:
  Slot() = default;
  explicit Slot(void* base) : base_(static_cast<char*>(base)) {}

  void* take(std::int64_t bytes) {
    void* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += rounded(bytes);
    return piece;
  }
  float* take_floats(std::int64_t count) { return static_cast<float*>(take(count * std::int64_t{sizeof(float)})); }
  std::int64_t used() const { return used_; }
  static std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

 private:
  char* base_ = nullptr;
  std::int64_t used_ = 0;
};

// The slot for each group of a unit's tensors. It differs between units that keep their forward and units that repeat
// it, and between training and validation; the units need not know.
struct UnitBuffers {
  Slot* for_input = nullptr;   // what backward_input alone needs of the forward
  Slot* for_weight = nullptr;  // inputs of the linear layers, which backward_weight needs too
  Slot* gradients = nullptr;   // from backward_input to backward_weight
  Slot* scratch = nullptr;     // within one action
};

// weight and bias of a linear layer or of a LayerNorm, and where their gradients accumulate.
struct Affine {
  const void* weight = nullptr;
  const void* bias = nullptr;
  float* dweight = nullptr;
  float* dbias = nullptr;
  bool first = false;  // dweight of a matrix product is set, not added to (ParameterView::first_micro_batch)
};

// LayerNorm: statistics of the forward, and this micro-batch's gradients of weight and bias. backward_input computes
// the latter, since it is the last reader of the (N,C) tensors that they follow from; backward_weight adds them up.
struct NormTensors {
  float* mean = nullptr;     // (N)
  float* rstd = nullptr;     // (N)
  float* dweight = nullptr;  // (C)
  float* dbias = nullptr;    // (C)
};

struct EmbeddingUnit {
  UnitSizes sizes;
  const void* wte = nullptr;  // (Vp,C)
  const void* wpe = nullptr;  // (maxT,C)
  float* dwte = nullptr;
  float* dwpe = nullptr;
  const std::int32_t* tokens = nullptr;  // (B,T)
  std::int64_t first_position = 0;       // of tokens and wpe; not 0: B is 1
  void* dy = nullptr;                    // (N,C) gradient of the output
};

// y = x + projection(attention(qkv(LayerNorm(x))))
struct AttentionUnit {
  UnitSizes sizes;
  Affine norm, qkv, projection;
  const void* x = nullptr;  // (N,C)
  void* dy = nullptr;       // (N,C) gradient of the output
  NormTensors norm_tensors;
  // (N,3C). With a cache: all positions of a row, those before first_position from earlier forwards.
  void* qkv_out = nullptr;
  std::int64_t first_position = 0;
  float* lse = nullptr;      // (B,NH,T)
  void* norm_out = nullptr;  // (N,C)
  void* attended = nullptr;  // (N,C)
  void* dqkv = nullptr;      // (N,3C)
  void* dhidden = nullptr;   // (N,C) gradient of attended, then of norm_out
  bool recomputes = false;   // backward_input repeats the forward
};

// y = x + down(gelu(up(LayerNorm(x))))
struct MlpUnit {
  UnitSizes sizes;
  Affine norm, up, down;
  const void* x = nullptr;  // (N,C)
  void* dy = nullptr;       // (N,C) gradient of the output
  NormTensors norm_tensors;
  void* pre = nullptr;        // (N,4C) before the GELU; a unit that recomputes has it in dpre
  void* norm_out = nullptr;   // (N,C)
  void* gelu_out = nullptr;   // (N,4C)
  void* dpre = nullptr;       // (N,4C)
  void* dnorm_out = nullptr;  // (N,C)
  bool recomputes = false;
};

EmbeddingUnit bind_embedding(const UnitSizes& sizes, const ModelConfig& model, const ParameterView& parameters);
AttentionUnit bind_attention(const UnitSizes& sizes, const ModelConfig& model, std::int64_t layer,
                             const ParameterView& parameters, const UnitBuffers& memory);
MlpUnit bind_mlp(const UnitSizes& sizes, const ModelConfig& model, std::int64_t layer, const ParameterView& parameters,
                 const UnitBuffers& memory, bool keeps_pre);

// y (N,C) may be the buffer that holds x.
void forward(Device& device, const EmbeddingUnit& unit, void* y);
void forward(Device& device, const AttentionUnit& unit, void* y);
void forward(Device& device, const MlpUnit& unit, void* y);
// dx (N,C), another buffer than dy
void backward_input(Device& device, const AttentionUnit& unit, void* dx);
void backward_input(Device& device, const MlpUnit& unit, void* dx);
void backward_weight(Device& device, const EmbeddingUnit& unit);
void backward_weight(Device& device, const AttentionUnit& unit);
void backward_weight(Device& device, const MlpUnit& unit);

// ---- shared by the units ----------------------------------------------------------------------------------------- A
// parameter at activation precision. Null if the view has none (counting bytes, validation).
const void* parameter(const UnitSizes& sizes, const ParameterView& view, int tensor);
Affine affine(const UnitSizes& sizes, const ParameterView& parameters, int weight, int bias);
NormTensors take_norm_tensors(const UnitSizes& sizes, const UnitBuffers& memory);
// dweight and dbias of out(N,OC) = in(N,C) weight^T + bias
void weight_gradient(Device& device, const Affine& linear, const void* in, const void* dout, std::int64_t N,
                     std::int64_t C, std::int64_t OC);
void norm_forward(Device& device, const UnitSizes& sizes, const Affine& norm, const NormTensors& tensors, void* out,
                  const void* x);
// dx = dresidual + LayerNorm's share (dresidual may be null), and the gradients of weight and bias into `tensors`
void norm_backward(Device& device, const UnitSizes& sizes, const Affine& norm, const NormTensors& tensors, void* dx,
                   const void* dout, const void* dresidual, const void* x);
void add_norm_gradients(Device& device, const UnitSizes& sizes, const Affine& norm, const NormTensors& tensors);

}  // namespace train_gpt
