// Head: final LayerNorm, logits, softmax cross-entropy. Both forms run one loop over chunks of rows: streamed does the
// three matrix products of a chunk in the forward, while its logits are in the cache; stored spreads them over forward,
// backward_input and backward_weight. A chunk's products and the order of the sums are the same, so the bits are too.
#include <algorithm>

#include "model/unit.h"

namespace train_gpt {
namespace {

struct Chunk {
  std::int64_t begin = 0;  // first row
  std::int64_t rows = 0;
};

template <class Visit>
void for_each_chunk(const HeadUnit& unit, const Visit& visit) {
  const std::int64_t N = unit.sizes.rows();
  for (std::int64_t begin = 0; begin < N; begin += unit.chunk) visit(Chunk{begin, std::min(unit.chunk, N - begin)});
}

void* rows_from(void* matrix, std::int64_t row, std::int64_t columns, const HeadUnit& unit) {
  return static_cast<char*>(matrix) + row * columns * unit.sizes.element;
}

void* chunk_logits(const HeadUnit& unit, Chunk chunk) {
  return unit.keeps_dlogits ? rows_from(unit.dlogits, chunk.begin, unit.sizes.Vp, unit) : unit.dlogits;
}

void* chunk_hidden(void* hidden, const HeadUnit& unit, Chunk chunk) {
  return rows_from(hidden, chunk.begin, unit.sizes.C, unit);
}

void chunk_backward_input(Device& device, const HeadUnit& unit, Chunk chunk) {
  device.matmul_backward_input(chunk_hidden(unit.dnorm_out, unit, chunk), chunk_logits(unit, chunk),
                               unit.classifier.weight, chunk.rows, unit.sizes.C, unit.sizes.Vp);
}

void chunk_backward_weight(Device& device, const HeadUnit& unit, Chunk chunk) {
  Affine classifier = unit.classifier;
  classifier.first = classifier.first && chunk.begin == 0;
  weight_gradient(device, classifier, chunk_hidden(unit.norm_out, unit, chunk), chunk_logits(unit, chunk), chunk.rows,
                  unit.sizes.C, unit.sizes.Vp);
}

Affine classifier(const UnitSizes& sizes, const ModelConfig& model, const ParameterView& parameters) {
  const int matrix = tensor_index(model, model.tied ? TensorKind::wte : TensorKind::headw);
  Affine result = affine(sizes, parameters, matrix, matrix);
  result.bias = nullptr;
  result.dbias = nullptr;
  if (model.tied && parameters.gradients != nullptr && parameters.layout->head_wte_gradient >= 0)
    result.dweight = parameters.gradients + parameters.layout->head_wte_gradient;
  return result;
}

}  // namespace

std::int64_t head_chunk_rows(std::int64_t rows, std::int64_t Vp) {
  constexpr std::int64_t kChunkBytes = std::int64_t{32} << 20;
  constexpr std::int64_t kMultiple = 64;
  const std::int64_t by_bytes = kChunkBytes / (Vp * std::int64_t{sizeof(float)}) / kMultiple * kMultiple;
  const std::int64_t by_rows = (rows / 16 + kMultiple - 1) / kMultiple * kMultiple;
  return std::min(rows, std::max({kMultiple, by_bytes, by_rows}));
}

HeadUnit bind_head(const UnitSizes& sizes, const ModelConfig& model, HeadForm form, bool with_gradient,
                   const ParameterView& parameters, const Homes& homes) {
  HeadUnit unit;
  unit.sizes = sizes;
  unit.form = form;
  unit.norm = affine(sizes, parameters, tensor_index(model, TensorKind::lnfw), tensor_index(model, TensorKind::lnfb));
  unit.classifier = classifier(sizes, model, parameters);
  unit.chunk = head_chunk_rows(sizes.rows(), sizes.Vp);
  unit.keeps_dlogits = with_gradient && form == HeadForm::stored;
  Homes own = homes;
  if (!unit.keeps_dlogits) own = {homes.scratch, homes.scratch, homes.scratch, homes.scratch};
  if (with_gradient && form == HeadForm::streamed) unit.dx = homes.for_input->take(sizes.activation_bytes(sizes.C));
  unit.norm_tensors = take_norm_tensors(sizes, own);
  unit.norm_out = own.for_weight->take(sizes.activation_bytes(sizes.C));
  unit.dlogits = own.for_weight->take((unit.keeps_dlogits ? sizes.rows() : unit.chunk) * sizes.Vp * sizes.element);
  if (with_gradient)
    unit.dnorm_out = own.scratch->take(sizes.activation_bytes(sizes.C));
  else
    unit.one_position = own.scratch->take(sizes.B * sizes.C * sizes.element);
  return unit;
}

void head_forward(Device& device, const HeadUnit& unit, float* losses, const std::int32_t* targets, float dloss,
                  bool with_gradient) {
  const UnitSizes& s = unit.sizes;
  const bool streams_backward = with_gradient && unit.form == HeadForm::streamed;
  norm_forward(device, s, unit.norm, unit.norm_tensors, unit.norm_out, unit.x);
  for_each_chunk(unit, [&](Chunk chunk) {
    void* logits = chunk_logits(unit, chunk);
    device.matmul_forward(logits, chunk_hidden(unit.norm_out, unit, chunk), unit.classifier.weight, nullptr, chunk.rows,
                          s.C, s.Vp);
    device.cross_entropy(losses + chunk.begin, logits, targets + chunk.begin, dloss, with_gradient, chunk.rows, s.V,
                         s.Vp);
    if (!streams_backward) return;
    chunk_backward_input(device, unit, chunk);
    chunk_backward_weight(device, unit, chunk);
  });
  if (!streams_backward) return;
  norm_backward(device, s, unit.norm, unit.norm_tensors, unit.dx, unit.dnorm_out, nullptr, unit.x);
  add_norm_gradients(device, s, unit.norm, unit.norm_tensors);
}

void head_logits(Device& device, const HeadUnit& unit, void* logits, std::int64_t position) {
  const UnitSizes& s = unit.sizes;
  norm_forward(device, s, unit.norm, unit.norm_tensors, unit.norm_out, unit.x);
  for (std::int64_t b = 0; b < s.B; ++b)
    device.copy(rows_from(unit.one_position, b, s.C, unit), rows_from(unit.norm_out, b * s.T + position, s.C, unit),
                s.C * s.element);
  device.matmul_forward(logits, unit.one_position, unit.classifier.weight, nullptr, s.B, s.C, s.Vp);
}

void backward_input(Device& device, const HeadUnit& unit, void* dx) {
  if (unit.form == HeadForm::streamed) {
    device.copy(dx, unit.dx, unit.sizes.activation_bytes(unit.sizes.C));
    return;
  }
  for_each_chunk(unit, [&](Chunk chunk) { chunk_backward_input(device, unit, chunk); });
  norm_backward(device, unit.sizes, unit.norm, unit.norm_tensors, dx, unit.dnorm_out, nullptr, unit.x);
}

void backward_weight(Device& device, const HeadUnit& unit) {
  if (unit.form == HeadForm::streamed) return;
  for_each_chunk(unit, [&](Chunk chunk) { chunk_backward_weight(device, unit, chunk); });
  add_norm_gradients(device, unit.sizes, unit.norm, unit.norm_tensors);
}

}  // namespace train_gpt
