#include "model/boundary.h"

namespace train_gpt {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

BoundaryTensor vector_of_rows(const char* name, std::int64_t N) { return {name, N, 1, kFloat}; }

}  // namespace

Boundary forward_boundary(const ModelConfig& model, const BoundarySizes& sizes, int unit, ForwardUse use) {
  const std::int64_t N = sizes.B * sizes.T;
  const std::int64_t C = model.hidden;
  const std::int64_t element = element_size(sizes.precision);
  Boundary boundary;
  if (unit_shard(model, unit) <= 0) {
    boundary.add({"x", N, C, element});
    return boundary;
  }
  if (use == ForwardUse::generation) {
    boundary.add({"X", sizes.B, C, element});
    boundary.add({"logits", sizes.B, vocabulary_shard(model, unit_shard(model, unit)).begin, element});
    return boundary;
  }
  boundary.add({"X", N, C, element});
  boundary.add(vector_of_rows("m", N));
  boundary.add(vector_of_rows("s", N));
  boundary.add(vector_of_rows("z", N));
  if (use == ForwardUse::training) boundary.add({"A", N, C, kFloat});
  return boundary;
}

Boundary backward_boundary(const ModelConfig& model, const BoundarySizes& sizes, int unit) {
  const std::int64_t N = sizes.B * sizes.T;
  Boundary boundary;
  if (unit_shard(model, unit) <= 0) {
    boundary.add({"dx", N, model.hidden, element_size(sizes.precision)});
    return boundary;
  }
  boundary.add({"dX", N, model.hidden, kFloat});
  boundary.add(vector_of_rows("m", N));
  boundary.add(vector_of_rows("s", N));
  return boundary;
}

}  // namespace train_gpt
