// Causal self-attention in blocks (FlashAttention: Dao et al. 2022, Dao 2023; online softmax: Milakov and Gimelshein
// 2018). A T x T matrix never exists: scratch holds one block of scores.
//
//   forward   one task per (row of the batch, head, block of queries), over blocks of keys up to the diagonal
//   backward  one task per (row of the batch, head), over blocks of keys and, within, blocks of queries from the
//             diagonal on: dq, dk and dv are summed by one thread, always in this order
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/vector_math.h"

namespace train_gpt::cpu {
namespace {

// Keys come in blocks of the long side in the forward, of the short side in the backward; that decides the bits.
// Queries come in blocks of the long side, for which keys and values are packed once; where the threads would run out
// of tasks, in blocks of the short one. Of a block on the diagonal only the triangle is computed (`Triangle`).
constexpr std::int64_t kShort = 64;
constexpr std::int64_t kLong = 256;

constexpr std::int64_t round_up(std::int64_t n) { return (n + 63) / 64 * 64; }

// Layout of the scratch memory for T positions: in the forward, scores of a long side of queries and of keys; in the
// backward, two blocks (long side of queries, short side of keys), then a number per position. Rows are whole vectors.
struct ScratchShape {
  explicit ScratchShape(std::int64_t T)
      : forward_rows(std::min(kLong, T)),
        forward_stride(std::min(kLong, round_up(T))),
        backward_stride(kShort),
        backward_block(round_up(std::min(kLong, T) * backward_stride)) {}
  std::int64_t forward_rows, forward_stride, backward_stride, backward_block;
};

// One head of one row of the batch within qkv(B,T,3C), or within a gradient of that shape.
template <typename Float>
struct Head {
  Float* q;
  Float* k;
  Float* v;
};

template <typename Float>
Head<Float> head_of(Float* qkv, std::int64_t b, std::int64_t h, std::int64_t T, std::int64_t C, std::int64_t hd) {
  Float* q = qkv + b * T * 3 * C + h * hd;
  return {q, q + C, q + 2 * C};
}

struct OnlineSoftmax {
  float largest[kLong];
  float sum[kLong];
};

// Vectors end where a row of scores does: numbers beyond the n visible ones are computed as well, and then overwritten.
constexpr std::int64_t whole_vectors(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Turns a row of n scores into exp(score - largest) and folds them into the running softmax of query i. Returns the
// factor by which earlier sums shrink.
float fold_row(OnlineSoftmax& softmax, std::int64_t i, float* scores, std::int64_t n, bool first) {
  const float largest = row_max(scores, n);
  const float before = softmax.largest[i];
  const float now = first ? largest : std::max(before, largest);
  for (std::int64_t j = 0; j < whole_vectors(n); ++j) scores[j] = exponential(scores[j] - now);
  const float shrink = first ? 0.0F : exponential(before - now);
  softmax.sum[i] = (first ? 0.0F : softmax.sum[i] * shrink) + row_sum(scores, n);
  softmax.largest[i] = now;
  return shrink;
}

// For the queries [first_query, end), all within one block of kLong; out and lse begin with first_query's.
void forward_block(ThreadPool& pool, int worker, float* scratch, float* out, float* lse, Head<const float> head,
                   std::int64_t first_query, std::int64_t end, std::int64_t T, std::int64_t C, std::int64_t hd) {
  const std::int64_t queries = end - first_query;
  const float scale = 1.0F / std::sqrt(static_cast<float>(hd));
  const Factor q{head.q + first_query * 3 * C, 3 * C, false};
  const std::int64_t stride = ScratchShape(T).forward_stride;
  float* products = scratch;
  float* scores = scratch + kProductScratch;
  OnlineSoftmax softmax;
  for (std::int64_t key = 0; key < end; key += kLong) {
    if (key > 0) pool.progress(worker);
    const std::int64_t keys = std::min(kLong, end - key);
    multiply(pool, worker, products, {.out = scores, .stride = stride, .scale = scale}, q,
             {head.k + key * 3 * C, 3 * C, true}, queries, keys, hd, {Triangle::Kind::wanted_below, first_query - key});
    for (std::int64_t i = 0; i < queries; ++i) {
      float* row = scores + i * stride;
      const std::int64_t visible = std::min(keys, first_query + i + 1 - key);
      const float shrink = fold_row(softmax, i, row, visible, key == 0);
      std::fill(row + visible, row + std::max(keys, whole_vectors(visible)), 0.0F);
      if (key == 0) continue;
      for (std::int64_t c = 0; c < hd; ++c) out[i * C + c] *= shrink;
    }
    multiply(pool, worker, products, {.out = out, .stride = C, .start = key > 0 ? out : nullptr},
             {scores, stride, false}, {head.v + key * 3 * C, 3 * C, false}, queries, hd, keys,
             {Triangle::Kind::left_below, first_query - key});
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    const float inverse = 1.0F / softmax.sum[i];
    for (std::int64_t c = 0; c < hd; ++c) out[i * C + c] *= inverse;
    lse[i] = softmax.largest[i] + std::log(softmax.sum[i]);
  }
}

// Pointers to the first position of one head.
struct BackwardHead {
  Head<const float> in;
  Head<float> gradient;
  const float* out;
  const float* dout;
  const float* lse;
};

// p = softmax of the scores, ds = p (dp - delta); both zero above the diagonal.
void softmax_backward_rows(float* p, float* ds, std::int64_t stride, const float* lse, const float* delta,
                           std::int64_t first_query, std::int64_t queries, std::int64_t key, std::int64_t keys) {
  for (std::int64_t i = 0; i < queries; ++i) {
    float* p_row = p + i * stride;
    float* ds_row = ds + i * stride;
    const std::int64_t visible = std::min(keys, first_query + i + 1 - key);
    const float normaliser = lse[first_query + i], shift = delta[first_query + i];
#pragma GCC ivdep
    for (std::int64_t j = 0; j < whole_vectors(visible); ++j) {
      p_row[j] = exponential(p_row[j] - normaliser);
      ds_row[j] = p_row[j] * (ds_row[j] - shift);
    }
    std::fill(p_row + visible, p_row + keys, 0.0F);
    std::fill(ds_row + visible, ds_row + keys, 0.0F);
  }
}

void backward_head(ThreadPool& pool, int worker, float* scratch, const BackwardHead& head, std::int64_t T,
                   std::int64_t C, std::int64_t hd) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(hd));
  const std::int64_t stride = 3 * C;
  float* products = scratch;
  const ScratchShape shape(T);
  const std::int64_t width = shape.backward_stride;
  float* p = scratch + kProductScratch;
  float* ds = p + shape.backward_block;
  float* delta = ds + shape.backward_block;
  // delta = rowsum(p * dp) = rowsum(dout * out)
  for (std::int64_t t = 0; t < T; ++t) {
    const float* o = head.out + t * C;
    Lanes sums{};
    std::int64_t c = 0;
    for (; c + kLanes <= hd; c += kLanes) sums += load_lanes(o + c) * load_lanes(head.dout + t * C + c);
    if (c < hd) sums += load_lanes(o + c, hd - c, 0) * load_lanes(head.dout + t * C + c, hd - c, 0);
    delta[t] = sum_of_lanes(sums);
  }
  const auto product = [&](const Destination& to, Factor left, Factor right, std::int64_t rows, std::int64_t columns,
                           std::int64_t depth, Triangle triangle) {
    multiply(pool, worker, products, to, left, right, rows, columns, depth, triangle);
  };
  for (std::int64_t key = 0; key < T; key += kShort) {
    const std::int64_t keys = std::min(kShort, T - key);
    const Factor k{head.in.k + key * stride, stride, false}, v{head.in.v + key * stride, stride, false};
    for (std::int64_t query = key; query < T; query += kLong) {
      pool.progress(worker);
      const std::int64_t queries = std::min(kLong, T - query);
      const Factor q{head.in.q + query * stride, stride, false}, dout{head.dout + query * C, C, false};
      const std::int64_t diagonal = query - key;
      const Triangle wanted{Triangle::Kind::wanted_below, diagonal}, below{Triangle::Kind::left_below, diagonal},
          above{Triangle::Kind::left_above, diagonal};
      product({.out = p, .stride = width, .scale = scale}, q, {k.data, stride, true}, queries, keys, hd, wanted);
      product({.out = ds, .stride = width}, dout, {v.data, stride, true}, queries, keys, hd, wanted);
      softmax_backward_rows(p, ds, width, head.lse, delta, query, queries, key, keys);
      const auto add = [&](float* out, float factor, bool again) {
        return Destination{.out = out, .stride = stride, .start = again ? out : nullptr, .scale = factor};
      };
      const bool again = query > key;
      product(add(head.gradient.v + key * stride, 1, again), {p, width, true}, dout, keys, hd, queries, above);
      product(add(head.gradient.k + key * stride, scale, again), {ds, width, true}, q, keys, hd, queries, above);
      product(add(head.gradient.q + query * stride, scale, key > 0), {ds, width, false}, k, queries, hd, keys, below);
    }
  }
}

}  // namespace

std::int64_t CpuDevice::attention_scratch_floats(std::int64_t T) {
  const ScratchShape shape(T);
  return kProductScratch + std::max(shape.forward_rows * shape.forward_stride, 2 * shape.backward_block + round_up(T));
}

void CpuDevice::attention_forward(void* out, float* lse, const void* qkv, std::int64_t B, std::int64_t T,
                                  std::int64_t C, std::int64_t NH) {
  const Scratch scores = scratch(attention_scratch_floats(T));
  const std::int64_t hd = C / NH;
  const bool many = B * NH * ((T + kLong - 1) / kLong) >= 4 * pool_.threads();
  const std::int64_t side = many ? kLong : kShort;
  const std::int64_t blocks = (T + side - 1) / side;
  pool_.run(B * NH * blocks, [&](std::int64_t task, int worker) {
    const std::int64_t b = task / blocks / NH, h = task / blocks % NH;
    const std::int64_t query = (blocks - 1 - task % blocks) * side;  // the longest first
    forward_block(pool_, worker, scores.of(worker), floats(out) + (b * T + query) * C + h * hd,
                  lse + (b * NH + h) * T + query, head_of(floats(qkv), b, h, T, C, hd), query,
                  std::min(query + side, T), T, C, hd);
  });
}

void CpuDevice::attention_forward_from(void* out, float* lse, const void* qkv, std::int64_t first, std::int64_t T,
                                       std::int64_t C, std::int64_t NH) {
  const Scratch scores = scratch(attention_scratch_floats(T));
  const std::int64_t hd = C / NH;
  const std::int64_t first_block = first / kShort;
  const std::int64_t blocks = (T + kShort - 1) / kShort - first_block;
  pool_.run(NH * blocks, [&](std::int64_t task, int worker) {
    const std::int64_t h = task / blocks;
    const std::int64_t block = (first_block + blocks - 1 - task % blocks) * kShort;
    const std::int64_t query = std::max(first, block);
    forward_block(pool_, worker, scores.of(worker), floats(out) + (query - first) * C + h * hd,
                  lse + h * (T - first) + query - first, head_of(floats(qkv), 0, h, T, C, hd), query,
                  std::min(block + kShort, T), T, C, hd);
  });
}

void CpuDevice::attention_backward(void* dqkv, const void* dout, const void* qkv, const void* out, const float* lse,
                                   std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) {
  const Scratch scores = scratch(attention_scratch_floats(T));
  const std::int64_t hd = C / NH;
  pool_.run(B * NH, [&](std::int64_t task, int worker) {
    const std::int64_t b = task / NH, h = task % NH;
    const std::int64_t position = b * T * C + h * hd;
    backward_head(pool_, worker, scores.of(worker),
                  {head_of(floats(qkv), b, h, T, C, hd), head_of(floats(dqkv), b, h, T, C, hd), floats(out) + position,
                   floats(dout) + position, lse + task * T},
                  T, C, hd);
  });
}

}  // namespace train_gpt::cpu
