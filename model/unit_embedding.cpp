// Embedding: y = wte[token] + wpe[position]. It has no input gradient, so backward_input has no work.
#include "model/unit.h"

namespace train_gpt {

EmbeddingUnit bind_embedding(const UnitSizes& sizes, const ModelConfig& model, const ParameterView& parameters) {
  const Affine tables =
      affine(sizes, parameters, tensor_index(model, TensorKind::wte), tensor_index(model, TensorKind::wpe));
  EmbeddingUnit unit;
  unit.sizes = sizes;
  unit.wte = tables.weight;
  unit.wpe = tables.bias;
  unit.dwte = tables.dweight;
  unit.dwpe = tables.dbias;
  return unit;
}

void forward(Device& device, const EmbeddingUnit& unit, void* y) {
  const UnitSizes& s = unit.sizes;
  const void* const positions = static_cast<const char*>(unit.wpe) + unit.first_position * s.C * s.element;
  device.embedding_forward(y, unit.tokens + unit.first_position, unit.wte, positions, s.B, s.T, s.C);
}

void backward_weight(Device& device, const EmbeddingUnit& unit) {
  device.embedding_backward(unit.dwte, unit.dwpe, unit.dy, unit.tokens, unit.sizes.B, unit.sizes.T, unit.sizes.C);
}

}  // namespace train_gpt
