#include "model/unit_head.h"

#include <algorithm>

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

template <class Element>
Element* rows_from(Element* matrix, std::int64_t row, std::int64_t columns) {
  return matrix == nullptr ? nullptr : matrix + row * columns;
}

void* rows_from(void* matrix, std::int64_t row, std::int64_t columns, const UnitSizes& sizes) {
  return static_cast<char*>(matrix) + row * columns * sizes.element;
}

void* normed_rows(const HeadUnit& unit, Chunk chunk) {
  return rows_from(unit.state.normed, chunk.begin, unit.sizes.C, unit.sizes);
}

SoftmaxFold fold_rows(const HeadUnit& unit, Chunk chunk) {
  const SoftmaxFold& fold = unit.state.fold;
  return {fold.largest + chunk.begin, fold.sum + chunk.begin, rows_from(fold.at_target, chunk.begin, 1),
          rows_from(fold.mixture, chunk.begin, unit.sizes.C)};
}

// E of a chunk. That of a streamed chunk is not needed after the chunk.
void* kept_rows(const HeadUnit& unit, const HeadShard& shard, Chunk chunk) {
  if (unit.streamed) return shard.kept;
  return rows_from(shard.kept, chunk.begin, shard.columns.width, unit.sizes);
}

float* largest_then_rows(const HeadUnit& unit, const HeadShard& shard, Chunk chunk) {
  return unit.streamed ? shard.largest_then : rows_from(shard.largest_then, chunk.begin, 1);
}

// The buffer for E of a chunk; in fp32 it is that of Y.
void* exponentials_of(const HeadUnit& unit, const HeadShard& shard, Chunk chunk) {
  return shard.kept == nullptr ? unit.exponentials : kept_rows(unit, shard, chunk);
}

float* scores_of(const HeadUnit& unit, void* exponentials) {
  return unit.scores == nullptr ? static_cast<float*>(exponentials) : unit.scores;
}

bool starts_fold(const HeadUnit& unit, const HeadShard& shard) { return unit.first && &shard == unit.shards.data(); }

void fold_shard(Device& device, const HeadUnit& unit, const HeadShard& shard, Chunk chunk) {
  const UnitSizes& s = unit.sizes;
  const SoftmaxFold fold = fold_rows(unit, chunk);
  const bool first = starts_fold(unit, shard);
  void* const exponentials = exponentials_of(unit, shard, chunk);
  float* const scores = scores_of(unit, exponentials);
  device.shard_scores(scores, normed_rows(unit, chunk), shard.classifier.weight, chunk.rows, s.C, shard.columns.width);
  device.fold_scores(fold, exponentials, largest_then_rows(unit, shard, chunk), scores, unit.targets + chunk.begin,
                     shard.columns, first, chunk.rows, s.C);
  device.shard_mixture(fold.mixture, exponentials, shard.classifier.weight, first, chunk.rows, s.C,
                       shard.columns.width);
}

void finish_chunk(Device& device, const HeadUnit& unit, Chunk chunk) {
  device.finish_cross_entropy(unit.losses + chunk.begin, fold_rows(unit, chunk), unit.targets + chunk.begin, unit.dloss,
                              chunk.rows, unit.sizes.C);
}

void subtract_targets(Device& device, const HeadUnit& unit, const HeadShard& shard, Chunk chunk) {
  device.subtract_targets(rows_from(unit.gradient, chunk.begin, unit.sizes.C), shard.classifier.weight,
                          unit.targets + chunk.begin, unit.dloss, shard.columns, chunk.rows, unit.sizes.C);
}

void add_weight_gradient(Device& device, const HeadUnit& unit, const HeadShard& shard, Chunk chunk) {
  const UnitSizes& s = unit.sizes;
  const SoftmaxFold fold = fold_rows(unit, chunk);
  const float* const largest_then = largest_then_rows(unit, shard, chunk);
  void* const exponentials = exponentials_of(unit, shard, chunk);
  if (shard.kept == nullptr) {
    float* const scores = scores_of(unit, exponentials);
    device.shard_scores(scores, normed_rows(unit, chunk), shard.classifier.weight, chunk.rows, s.C,
                        shard.columns.width);
    device.score_exponentials(exponentials, scores, largest_then, shard.columns, chunk.rows);
  }
  device.score_gradients(exponentials, exponentials, largest_then, fold.largest, fold.sum, unit.targets + chunk.begin,
                         unit.dloss, shard.columns, chunk.rows);
  Affine classifier = shard.classifier;
  classifier.first = classifier.first && chunk.begin == 0;
  weight_gradient(device, classifier, normed_rows(unit, chunk), exponentials, chunk.rows, s.C, shard.columns.width);
}

// Copies the state of the previous stage, to go on folding. Only F calls this.
void take_over(Device& device, const HeadUnit& unit) {
  const HeadState& from = unit.before;
  const UnitSizes& s = unit.sizes;
  const std::int64_t vector = s.rows() * std::int64_t{sizeof(float)};
  device.copy(unit.state.normed, from.normed, s.activation_bytes(s.C));
  device.copy(unit.state.fold.largest, from.fold.largest, vector);
  device.copy(unit.state.fold.sum, from.fold.sum, vector);
  device.copy(unit.state.fold.at_target, from.fold.at_target, vector);
  if (unit.state.fold.mixture != nullptr) device.copy(unit.state.fold.mixture, from.fold.mixture, vector * s.C);
}

void begin_fold(Device& device, const HeadUnit& unit) {
  if (unit.first)
    norm_forward(device, unit.sizes, unit.norm, unit.norm_tensors, unit.state.normed, unit.x);
  else
    take_over(device, unit);
}

// Copies `from` (B,count) to the logits' columns from `column` on.
void copy_columns(Device& device, const HeadUnit& unit, std::int64_t column, void* from, std::int64_t count) {
  const UnitSizes& s = unit.sizes;
  for (std::int64_t b = 0; b < s.B; ++b)
    device.copy(static_cast<char*>(unit.state.logits) + (b * unit.state.logit_columns + column) * s.element,
                rows_from(from, b, count, s), count * s.element);
}

// Takes dX through LayerNorm.
void leave_head(Device& device, const HeadUnit& unit, void* dx) {
  if (unit.rounded_gradient != unit.gradient)
    device.from_float(unit.rounded_gradient, unit.gradient, unit.sizes.rows() * unit.sizes.C);
  norm_backward(device, unit.sizes, unit.norm, unit.norm_tensors, dx, unit.rounded_gradient, nullptr, unit.x);
}

}  // namespace

std::int64_t head_chunk_rows(HeadChunks chunks, std::int64_t rows, std::int64_t Vp, std::int64_t shard_width) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20, kMultiple = 64;
  const bool gpu = chunks == HeadChunks::for_gpu;
  const std::int64_t bytes = gpu ? 24 * kMiB : 32 * kMiB, columns = gpu ? shard_width : Vp;
  const std::int64_t share = gpu ? (rows + 3) / 4 : rows / 16;
  const std::int64_t by_bytes = bytes / (columns * std::int64_t{sizeof(float)}) / kMultiple * kMultiple;
  const std::int64_t by_rows = (share + kMultiple - 1) / kMultiple * kMultiple;
  return std::min(rows, std::max({kMultiple, by_bytes, by_rows}));
}

void head_forward(Device& device, const HeadUnit& unit) {
  begin_fold(device, unit);
  for_each_chunk(unit, [&](Chunk chunk) {
    for (const HeadShard& shard : unit.shards) fold_shard(device, unit, shard, chunk);
    if (unit.last) finish_chunk(device, unit, chunk);
    if (!unit.streamed) return;
    for (const HeadShard& shard : unit.shards) subtract_targets(device, unit, shard, chunk);
    for (const HeadShard& shard : unit.shards) add_weight_gradient(device, unit, shard, chunk);
  });
  if (unit.next_normed != nullptr)
    device.copy(unit.next_normed, unit.state.normed, unit.sizes.activation_bytes(unit.sizes.C));
  if (!unit.streamed) return;
  leave_head(device, unit, unit.dx);
  add_norm_gradients(device, unit.sizes, unit.norm, unit.norm_tensors);
}

void head_validate(Device& device, const HeadUnit& unit) {
  begin_fold(device, unit);
  for_each_chunk(unit, [&](Chunk chunk) {
    const SoftmaxFold fold = fold_rows(unit, chunk);
    for (const HeadShard& shard : unit.shards) {
      device.shard_scores(unit.scores, normed_rows(unit, chunk), shard.classifier.weight, chunk.rows, unit.sizes.C,
                          shard.columns.width);
      device.fold_scores(fold, nullptr, nullptr, unit.scores, unit.targets + chunk.begin, shard.columns,
                         starts_fold(unit, shard), chunk.rows, unit.sizes.C);
    }
    if (unit.last) finish_chunk(device, unit, chunk);
  });
}

void head_logits(Device& device, const HeadUnit& unit, std::int64_t position) {
  const UnitSizes& s = unit.sizes;
  void* const at_position = unit.state.normed;
  if (unit.first) {
    norm_forward(device, s, unit.norm, unit.norm_tensors, unit.all_normed, unit.x);
    for (std::int64_t b = 0; b < s.B; ++b)
      device.copy(rows_from(at_position, b, s.C, s), rows_from(unit.all_normed, b * s.T + position, s.C, s),
                  s.C * s.element);
  } else {
    device.copy(at_position, unit.before.normed, s.B * s.C * s.element);
    copy_columns(device, unit, 0, unit.before.logits, unit.before.logit_columns);
  }
  for (const HeadShard& shard : unit.shards) {
    const auto [begin, width, columns] = shard.columns;
    device.matmul_forward(unit.shard_logits, at_position, shard.classifier.weight, nullptr, s.B, s.C, width);
    copy_columns(device, unit, begin, unit.shard_logits, width);
  }
}

void backward_input(Device& device, const HeadUnit& unit, void* dx) {
  const UnitSizes& s = unit.sizes;
  if (unit.streamed) {
    device.copy(dx, unit.dx, s.activation_bytes(s.C));
    return;
  }
  const std::int64_t vector = s.rows() * std::int64_t{sizeof(float)};
  device.copy(unit.gradient, unit.from_next.mixture, vector * s.C);
  if (!unit.last) {
    device.copy(unit.state.fold.largest, unit.from_next.largest, vector);
    device.copy(unit.state.fold.sum, unit.from_next.sum, vector);
  }
  if (!unit.first) {
    device.copy(unit.to_previous.largest, unit.state.fold.largest, vector);
    device.copy(unit.to_previous.sum, unit.state.fold.sum, vector);
  }
  const Chunk all = {0, s.rows()};
  for (const HeadShard& shard : unit.shards) subtract_targets(device, unit, shard, all);
  if (unit.first) leave_head(device, unit, dx);
}

void backward_weight(Device& device, const HeadUnit& unit) {
  if (unit.streamed) return;
  for (const HeadShard& shard : unit.shards)
    for_each_chunk(unit, [&](Chunk chunk) { add_weight_gradient(device, unit, shard, chunk); });
  if (unit.first) add_norm_gradients(device, unit.sizes, unit.norm, unit.norm_tensors);
}

}  // namespace train_gpt
