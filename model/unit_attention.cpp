// Attention: LayerNorm, QKV, causal attention, projection, residual.
#include "model/unit.h"

namespace train_gpt {
namespace {

void forward_to_attended(Device& device, const AttentionUnit& unit) {
  const UnitSizes& s = unit.sizes;
  norm_forward(device, unit.sizes, unit.norm, unit.norm_tensors, unit.norm_out, unit.x);
  const std::int64_t first = unit.first_position;
  void* const qkv = static_cast<char*>(unit.qkv_out) + first * 3 * s.C * s.element;
  device.matmul_forward(qkv, unit.norm_out, unit.qkv.weight, unit.qkv.bias, s.rows(), s.C, 3 * s.C);
  if (first == 0)
    device.attention_forward(unit.attended, unit.lse, unit.qkv_out, s.B, s.T, s.C, s.NH);
  else
    device.attention_forward_from(unit.attended, unit.lse, unit.qkv_out, first, first + s.T, s.C, s.NH);
}

}  // namespace

AttentionUnit bind_attention(const UnitSizes& sizes, const ModelConfig& model, std::int64_t layer,
                             const ParameterView& parameters, const UnitBuffers& memory) {
  const auto tensor = [&](TensorKind kind) { return tensor_index(model, kind, layer); };
  AttentionUnit unit;
  unit.sizes = sizes;
  unit.norm = affine(sizes, parameters, tensor(TensorKind::ln1w), tensor(TensorKind::ln1b));
  unit.qkv = affine(sizes, parameters, tensor(TensorKind::qkvw), tensor(TensorKind::qkvb));
  unit.projection = affine(sizes, parameters, tensor(TensorKind::attprojw), tensor(TensorKind::attprojb));
  unit.norm_tensors = take_norm_tensors(sizes, memory);
  unit.qkv_out = memory.for_input->take(sizes.activation_bytes(3 * sizes.C));
  unit.lse = memory.for_input->take_floats(sizes.rows() * sizes.NH);
  unit.norm_out = memory.for_weight->take(sizes.activation_bytes(sizes.C));
  unit.attended = memory.for_weight->take(sizes.activation_bytes(sizes.C));
  unit.dqkv = memory.gradients->take(sizes.activation_bytes(3 * sizes.C));
  unit.dhidden = memory.scratch->take(sizes.activation_bytes(sizes.C));
  return unit;
}

void forward(Device& device, const AttentionUnit& unit, void* y) {
  forward_to_attended(device, unit);
  device.matmul_residual_forward(y, unit.attended, unit.projection.weight, unit.projection.bias, unit.x,
                                 unit.sizes.rows(), unit.sizes.C, unit.sizes.C);
}

void backward_input(Device& device, const AttentionUnit& unit, void* dx) {
  const UnitSizes& s = unit.sizes;
  if (unit.recomputes) forward_to_attended(device, unit);
  device.matmul_backward_input(unit.dhidden, unit.dy, unit.projection.weight, s.rows(), s.C, s.C);
  device.attention_backward(unit.dqkv, unit.dhidden, unit.qkv_out, unit.attended, unit.lse, s.B, s.T, s.C, s.NH);
  device.matmul_backward_input(unit.dhidden, unit.dqkv, unit.qkv.weight, s.rows(), s.C, 3 * s.C);
  norm_backward(device, unit.sizes, unit.norm, unit.norm_tensors, dx, unit.dhidden, unit.dy, unit.x);
}

void backward_weight(Device& device, const AttentionUnit& unit) {
  const std::int64_t N = unit.sizes.rows();
  const std::int64_t C = unit.sizes.C;
  weight_gradient(device, unit.projection, unit.attended, unit.dy, N, C, C);
  weight_gradient(device, unit.qkv, unit.norm_out, unit.dqkv, N, C, 3 * C);
  add_norm_gradients(device, unit.sizes, unit.norm, unit.norm_tensors);
}

}  // namespace train_gpt
