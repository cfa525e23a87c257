#include "model/stage.h"

namespace train_gpt {
namespace {

// Weights of matrix products.
bool is_product(TensorKind kind) {
  return kind == TensorKind::qkvw || kind == TensorKind::attprojw || kind == TensorKind::fcw ||
         kind == TensorKind::fcprojw || kind == TensorKind::headw;
}

}  // namespace

std::vector<GradientRange> gradient_ranges(const StageShape& shape, const ArenaLayout& layout) {
  const std::vector<TensorInfo> tensors = model_tensors(shape.model);
  const int head = unit_count(shape.model) - 1;
  const bool streamed = shape.head == HeadForm::streamed;
  std::vector<GradientRange> ranges;
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const TensorInfo& tensor = tensors[static_cast<std::size_t>(entry.tensor)];
    if (tensor.unit >= shape.first_unit && tensor.unit < shape.last_unit)
      ranges.push_back({entry.offset, tensor.elements, streamed && tensor.unit == head, is_product(tensor.kind)});
    if (tensor.kind == TensorKind::wte && shape.model.tied && shape.has_head()) {
      const std::int64_t offset = layout.head_wte_gradient >= 0 ? layout.head_wte_gradient : entry.offset;
      ranges.push_back({offset, tensor.elements, streamed, true});
    }
  }
  return ranges;
}

}  // namespace train_gpt
