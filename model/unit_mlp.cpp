// Mlp: LayerNorm, up, GELU, down, residual.
#include "model/unit.h"

namespace train_gpt {
namespace {

void forward_to_gelu(Device& device, const MlpUnit& unit) {
  const std::int64_t C = unit.sizes.C;
  norm_forward(device, unit.sizes, unit.norm, unit.norm_tensors, unit.norm_out, unit.x);
  device.matmul_gelu_forward(unit.gelu_out, unit.pre, unit.norm_out, unit.up.weight, unit.up.bias, unit.sizes.rows(), C,
                             4 * C);
}

}  // namespace

MlpUnit bind_mlp(const UnitSizes& sizes, const ModelConfig& model, std::int64_t layer, const ParameterView& parameters,
                 const UnitBuffers& memory, bool keeps_pre) {
  const auto tensor = [&](TensorKind kind) { return tensor_index(model, kind, layer); };
  MlpUnit unit;
  unit.sizes = sizes;
  unit.norm = affine(sizes, parameters, tensor(TensorKind::ln2w), tensor(TensorKind::ln2b));
  unit.up = affine(sizes, parameters, tensor(TensorKind::fcw), tensor(TensorKind::fcb));
  unit.down = affine(sizes, parameters, tensor(TensorKind::fcprojw), tensor(TensorKind::fcprojb));
  unit.norm_tensors = take_norm_tensors(sizes, memory);
  unit.norm_out = memory.for_weight->take(sizes.activation_bytes(sizes.C));
  unit.gelu_out = memory.for_weight->take(sizes.activation_bytes(4 * sizes.C));
  unit.dpre = memory.gradients->take(sizes.activation_bytes(4 * sizes.C));
  unit.pre = keeps_pre ? memory.for_input->take(sizes.activation_bytes(4 * sizes.C)) : unit.dpre;
  unit.dnorm_out = memory.scratch->take(sizes.activation_bytes(sizes.C));
  return unit;
}

void forward(Device& device, const MlpUnit& unit, void* y) {
  forward_to_gelu(device, unit);
  device.matmul_residual_forward(y, unit.gelu_out, unit.down.weight, unit.down.bias, unit.x, unit.sizes.rows(),
                                 4 * unit.sizes.C, unit.sizes.C);
}

void backward_input(Device& device, const MlpUnit& unit, void* dx) {
  const std::int64_t N = unit.sizes.rows();
  const std::int64_t C = unit.sizes.C;
  if (unit.recomputes) forward_to_gelu(device, unit);
  device.matmul_gelu_backward_input(unit.dpre, unit.dy, unit.down.weight, unit.pre, N, 4 * C, C);
  device.matmul_backward_input(unit.dnorm_out, unit.dpre, unit.up.weight, N, C, 4 * C);
  norm_backward(device, unit.sizes, unit.norm, unit.norm_tensors, dx, unit.dnorm_out, unit.dy, unit.x);
}

void backward_weight(Device& device, const MlpUnit& unit) {
  const std::int64_t N = unit.sizes.rows();
  const std::int64_t C = unit.sizes.C;
  weight_gradient(device, unit.down, unit.gelu_out, unit.dy, N, 4 * C, C);
  weight_gradient(device, unit.up, unit.norm_out, unit.dpre, N, C, 4 * C);
  add_norm_gradients(device, unit.sizes, unit.norm, unit.norm_tensors);
}

}  // namespace train_gpt
