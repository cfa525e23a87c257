#include "model/stage.h"

namespace train_gpt {
namespace {

// True for weights of matrix products.
bool is_product(TensorKind kind) {
  return kind == TensorKind::qkvw || kind == TensorKind::attprojw || kind == TensorKind::fcw ||
         kind == TensorKind::fcprojw || kind == TensorKind::headw;
}

}  // namespace

std::vector<GradientRange> gradient_ranges(const StageShape& shape, const ArenaLayout& layout) {
  const int head = first_head_unit(shape.model);
  const bool streamed = shape.streams_head();
  const auto holds = [&](int unit) { return unit >= shape.first_unit && unit < shape.last_unit; };
  std::vector<GradientRange> ranges;
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const TensorInfo& tensor = entry.info;
    if (holds(tensor.unit))
      ranges.push_back(
          {entry.offset, tensor.elements, streamed && tensor.unit >= head, is_product(tensor.kind), tensor.unit});
    if (tensor.kind == TensorKind::wte && shape.model.tied && holds(head + tensor.shard)) {
      const std::int64_t offset = entry.head_gradient >= 0 ? entry.head_gradient : entry.offset;
      ranges.push_back({offset, tensor.elements, streamed, true, head + tensor.shard});
    }
  }
  return ranges;
}

}  // namespace train_gpt
