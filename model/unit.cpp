#include "model/unit.h"

namespace train_gpt {

const void* parameter(const UnitSizes& sizes, const ParameterView& view, int tensor) {
  if (view.low == nullptr) return nullptr;
  return static_cast<const char*>(view.low) + view.layout->offset_of(tensor) * sizes.element;
}

namespace {

float* gradient(const ParameterView& view, int tensor) {
  return view.gradients == nullptr ? nullptr : view.gradients + view.of_gradients().offset_of(tensor);
}

}  // namespace

UnitSizes unit_sizes(const StageShape& shape, Precision precision) {
  UnitSizes sizes;
  sizes.B = shape.B;
  sizes.T = shape.T;
  sizes.C = shape.model.hidden;
  sizes.NH = shape.model.heads;
  sizes.V = shape.model.vocab;
  sizes.Vp = shape.model.padded_vocab();
  sizes.element = element_size(precision);
  sizes.chunks = shape.chunks;
  return sizes;
}

Affine affine(const UnitSizes& sizes, const ParameterView& parameters, int weight, int bias) {
  return {parameter(sizes, parameters, weight), parameter(sizes, parameters, bias), gradient(parameters, weight),
          gradient(parameters, bias), parameters.first_micro_batch};
}

void weight_gradient(Device& device, const Affine& linear, const void* in, const void* dout, std::int64_t N,
                     std::int64_t C, std::int64_t OC) {
  if (linear.first)
    device.matmul_first_backward_weight(linear.dweight, linear.dbias, in, dout, N, C, OC);
  else
    device.matmul_backward_weight(linear.dweight, linear.dbias, in, dout, N, C, OC);
}

NormTensors take_norm_tensors(const UnitSizes& sizes, const UnitBuffers& memory) {
  NormTensors tensors;
  tensors.mean = memory.for_input->take_floats(sizes.rows());
  tensors.rstd = memory.for_input->take_floats(sizes.rows());
  tensors.dweight = memory.gradients->take_floats(sizes.C);
  tensors.dbias = memory.gradients->take_floats(sizes.C);
  return tensors;
}

void norm_forward(Device& device, const UnitSizes& sizes, const Affine& norm, const NormTensors& tensors, void* out,
                  const void* x) {
  device.layernorm_forward(out, tensors.mean, tensors.rstd, x, norm.weight, norm.bias, sizes.rows(), sizes.C);
}

void norm_backward(Device& device, const UnitSizes& sizes, const Affine& norm, const NormTensors& tensors, void* dx,
                   const void* dout, const void* dresidual, const void* x) {
  const Device::Zeros zeros[] = {{tensors.dweight, sizes.C}, {tensors.dbias, sizes.C}};
  device.zero_all(zeros);
  device.layernorm_backward_weight(tensors.dweight, tensors.dbias, dout, x, tensors.mean, tensors.rstd, sizes.rows(),
                                   sizes.C);
  device.layernorm_backward_input(dx, dout, dresidual, x, tensors.mean, tensors.rstd, norm.weight, sizes.rows(),
                                  sizes.C);
}

void add_norm_gradients(Device& device, const UnitSizes& sizes, const Affine& norm, const NormTensors& tensors) {
  const Device::Addition sums[] = {{norm.dweight, tensors.dweight, sizes.C}, {norm.dbias, tensors.dbias, sizes.C}};
  device.add_all(sums);
}

}  // namespace train_gpt
