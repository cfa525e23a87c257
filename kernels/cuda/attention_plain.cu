// Causal attention without tensor cores: fp32 arithmetic, any head size up to 256. FlashAttention's order of work (Dao
// et al. 2022; online softmax: Milakov and Gimelshein 2018): T x T is never stored.
//
//   forward       one warp per query; 8 queries of a block share tiles of 32 keys in shared memory. A lane holds the
//                 score of one key, then every 32nd element of the output.
//   backward, dq  the same walk over keys, with p = exp(s - lse) and ds = p (dout v - delta), dq = scale ds k
//   backward, dkv one warp per key, the same walk over queries from the diagonal on: dv = p dout, dk = scale ds q
//                 Each gradient is summed by one warp in order of position: deterministic, no atomics.
//
// FLOPs for causal T: forward 2 B T^2 C, backward 7 B T^2 C (scores and dp are computed twice). Bytes: 4 e B T C
// forward; every tile is read from L2 once per block of 8 rows. Bound by shared memory: a lane reads 4 to 8 bytes for a
// multiply-add, so 1/8 to 1/4 of the fp32 peak: 8 to 16 TFLOP/s on an H100 or H200, 2.5 to 5 TFLOP/s on an A100. bf16
// at head sizes 64 and 128 takes attention_flash_forward.cu and attention_flash_backward.cu instead.
#include <cmath>

#include "kernels/cuda/attention_plain.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/operation_parts.h"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kRows = 8;  // rows of a block, one per warp
constexpr int kThreads = kRows * kWarp;
constexpr int kBlocks = 2;    // of a multiprocessor, at heads of 256; aiming at more spills registers on some cards
constexpr int kTile = kWarp;  // rows of a tile, one per lane
constexpr int kMaxPerLane = static_cast<int>(kMaxHeadSize) / kWarp;

struct Shape {
  std::int64_t B, T, C, NH;
  int head_size;
  float scale;
  std::int64_t row_blocks() const { return (T + kRows - 1) / kRows; }
};

// What a block works on: one head of one row of the batch, and its first row.
struct Place {
  std::int64_t b, h, first;
};

__device__ Place place_of_block(const Shape& shape) {
  const std::int64_t row_blocks = (shape.T + kRows - 1) / kRows;
  const std::int64_t head = blockIdx.x / row_blocks;
  return {head / shape.NH, head % shape.NH, blockIdx.x % row_blocks * kRows};
}

// One head of qkv(B,T,3C), or of its gradient, at position 0. part: 0 q, 1 k, 2 v.
template <typename Float>
__device__ Float* head_of(Float* qkv, const Shape& shape, const Place& place, int part) {
  return qkv + place.b * shape.T * 3 * shape.C + part * shape.C + place.h * shape.head_size;
}

// One head of out(B,T,C) or dout.
template <typename Float>
__device__ Float* head_of_out(Float* out, const Shape& shape, const Place& place) {
  return out + place.b * shape.T * shape.C + place.h * shape.head_size;
}

// Rows of the tile have one float more than they need: lanes that walk down a column fall into different banks.
__device__ int pitch(const Shape& shape) { return shape.head_size + 1; }

// tile(kTile, pitch) = rows first .. of a head, zeros past row `end`. The whole block takes part.
template <typename Float>
__device__ void load_tile(float* tile, const Float* head, std::int64_t stride, std::int64_t first, std::int64_t end,
                          const Shape& shape) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * shape.head_size; i += kThreads) {
    const int row = i / shape.head_size, d = i % shape.head_size;
    tile[row * pitch(shape) + d] = first + row < end ? as_float(head[(first + row) * stride + d]) : 0.0F;
  }
}

// One row of the block per warp, as floats in shared memory.
template <typename Float>
__device__ void load_row(float* row, const Float* head, std::int64_t stride, std::int64_t position, bool present,
                         const Shape& shape) {
  for (int d = static_cast<int>(threadIdx.x) % kWarp; d < shape.head_size; d += kWarp) {
    row[d] = present ? as_float(head[position * stride + d]) : 0.0F;
  }
}

__device__ float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int d = 0; d < n; ++d) sum = fmaf(a[d], b[d], sum);
  return sum;
}

// sum[..] += weights(kTile) tile, a lane has elements lane, lane + 32, ..
__device__ void accumulate(float (&sum)[kMaxPerLane], const float* weights, const float* tile, const Shape& shape) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int row = 0; row < kTile; ++row) {
    const float weight = weights[row];
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      const int d = lane + i * kWarp;
      if (d < shape.head_size) sum[i] = fmaf(weight, tile[row * pitch(shape) + d], sum[i]);
    }
  }
}

template <typename Float>
__device__ void store_row(Float* to, const float (&values)[kMaxPerLane], float factor, const Shape& shape) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int d = lane + i * kWarp;
    if (d < shape.head_size) to[d] = rounded<Float>(values[i] * factor);
  }
}

// Shared memory: two tiles, and per warp two rows and a row of weights for either tile.
constexpr std::size_t shared_floats(int head_size) {
  return static_cast<std::size_t>(2 * kTile * (head_size + 1) + kRows * (2 * head_size + 2 * kTile));
}

struct Shared {
  float* tile;
  float* other_tile;
  float* row;        // of this warp
  float* other_row;  // of this warp
  float* weights;    // of this warp, kTile
  float* more_weights;
};

__device__ Shared shared_memory(float* memory, const Shape& shape) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float* rows = memory + 2 * kTile * pitch(shape);
  float* mine = rows + warp * (2 * shape.head_size + 2 * kTile);
  return {memory,
          memory + kTile * pitch(shape),
          mine,
          mine + shape.head_size,
          mine + 2 * shape.head_size,
          mine + 2 * shape.head_size + kTile};
}

template <typename Float>
__global__ void __launch_bounds__(kThreads, kBlocks)
    plain_forward_kernel(Float* out, float* lse, const Float* qkv, Shape shape) {
  extern __shared__ float memory[];
  const Shared shared = shared_memory(memory, shape);
  const Place place = place_of_block(shape);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t query = place.first + warp, stride = 3 * shape.C;
  const bool present = query < shape.T;
  const std::int64_t end = place.first + kRows < shape.T ? place.first + kRows : shape.T;  // of the visible keys
  load_row(shared.row, head_of(qkv, shape, place, 0), stride, query, present, shape);

  float largest = -INFINITY, sum = 0, result[kMaxPerLane] = {};
  for (std::int64_t first = 0; first < end; first += kTile) {
    __syncthreads();
    load_tile(shared.tile, head_of(qkv, shape, place, 1), stride, first, end, shape);
    load_tile(shared.other_tile, head_of(qkv, shape, place, 2), stride, first, end, shape);
    __syncthreads();
    const bool visible = present && first + lane <= query;
    const float score =
        visible ? shape.scale * dot(shared.row, shared.tile + lane * pitch(shape), shape.head_size) : -INFINITY;
    const float now = fmaxf(largest, warp_max(score));
    const float weight = visible ? expf(score - now) : 0.0F;
    const float shrink = largest == now ? 1.0F : expf(largest - now);
    sum = sum * shrink + warp_sum(weight);
    largest = now;
    shared.weights[lane] = weight;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) result[i] *= shrink;
    accumulate(result, shared.weights, shared.other_tile, shape);
  }
  if (!present) return;
  store_row(head_of_out(out, shape, place) + query * shape.C, result, 1.0F / sum, shape);
  if (lane == 0) lse[(place.b * shape.NH + place.h) * shape.T + query] = largest + logf(sum);
}

template <typename Float>
__global__ void __launch_bounds__(kThreads, kBlocks)
    plain_backward_query_kernel(Float* dqkv, const Float* dout, const Float* qkv, const float* lse, const float* delta,
                                Shape shape) {
  extern __shared__ float memory[];
  const Shared shared = shared_memory(memory, shape);
  const Place place = place_of_block(shape);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t query = place.first + warp, stride = 3 * shape.C;
  const bool present = query < shape.T;
  const std::int64_t end = place.first + kRows < shape.T ? place.first + kRows : shape.T;
  const std::int64_t row = (place.b * shape.NH + place.h) * shape.T + query;
  load_row(shared.row, head_of(qkv, shape, place, 0), stride, query, present, shape);
  load_row(shared.other_row, head_of_out(dout, shape, place), shape.C, query, present, shape);
  const float normaliser = present ? lse[row] : 0.0F, shift = present ? delta[row] : 0.0F;

  float dq[kMaxPerLane] = {};
  for (std::int64_t first = 0; first < end; first += kTile) {
    __syncthreads();
    load_tile(shared.tile, head_of(qkv, shape, place, 1), stride, first, end, shape);
    load_tile(shared.other_tile, head_of(qkv, shape, place, 2), stride, first, end, shape);
    __syncthreads();
    float ds = 0;
    if (present && first + lane <= query) {
      const float score = shape.scale * dot(shared.row, shared.tile + lane * pitch(shape), shape.head_size);
      const float dp = dot(shared.other_row, shared.other_tile + lane * pitch(shape), shape.head_size);
      ds = expf(score - normaliser) * (dp - shift);
    }
    shared.weights[lane] = ds;
    __syncwarp();
    accumulate(dq, shared.weights, shared.tile, shape);
  }
  if (present) store_row(head_of(dqkv, shape, place, 0) + query * stride, dq, shape.scale, shape);
}

template <typename Float>
__global__ void __launch_bounds__(kThreads, kBlocks)
    plain_backward_key_kernel(Float* dqkv, const Float* dout, const Float* qkv, const float* lse, const float* delta,
                              Shape shape) {
  extern __shared__ float memory[];
  const Shared shared = shared_memory(memory, shape);
  const Place place = place_of_block(shape);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t key = place.first + warp, stride = 3 * shape.C;
  const bool present = key < shape.T;
  const float* lse_head = lse + (place.b * shape.NH + place.h) * shape.T;
  const float* delta_head = delta + (place.b * shape.NH + place.h) * shape.T;
  load_row(shared.row, head_of(qkv, shape, place, 1), stride, key, present, shape);
  load_row(shared.other_row, head_of(qkv, shape, place, 2), stride, key, present, shape);

  float dk[kMaxPerLane] = {}, dv[kMaxPerLane] = {};
  for (std::int64_t first = place.first; first < shape.T; first += kTile) {
    __syncthreads();
    load_tile(shared.tile, head_of(qkv, shape, place, 0), stride, first, shape.T, shape);
    load_tile(shared.other_tile, head_of_out(dout, shape, place), shape.C, first, shape.T, shape);
    __syncthreads();
    const std::int64_t query = first + lane;
    float p = 0, ds = 0;
    if (present && query >= key && query < shape.T) {
      const float score = shape.scale * dot(shared.row, shared.tile + lane * pitch(shape), shape.head_size);
      const float dp = dot(shared.other_row, shared.other_tile + lane * pitch(shape), shape.head_size);
      p = expf(score - lse_head[query]);
      ds = p * (dp - delta_head[query]);
    }
    shared.weights[lane] = p;
    shared.more_weights[lane] = ds;
    __syncwarp();
    accumulate(dv, shared.weights, shared.other_tile, shape);
    accumulate(dk, shared.more_weights, shared.tile, shape);
  }
  if (!present) return;
  store_row(head_of(dqkv, shape, place, 1) + key * stride, dk, shape.scale, shape);
  store_row(head_of(dqkv, shape, place, 2) + key * stride, dv, 1.0F, shape);
}

Shape shape_of(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) {
  const int head_size = static_cast<int>(C / NH);
  return {B, T, C, NH, head_size, 1.0F / std::sqrt(static_cast<float>(head_size))};
}

unsigned blocks_of(const Shape& shape) { return static_cast<unsigned>(shape.B * shape.NH * shape.row_blocks()); }

// Bytes of dynamic shared memory, allowed for the kernel where they exceed the 48 KiB that every kernel may use.
template <typename Kernel>
std::size_t shared_bytes(Kernel* kernel, const Shape& shape) {
  const std::size_t bytes = shared_floats(shape.head_size) * sizeof(float);
  if (bytes > 48 * 1024) {
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  }
  return bytes;
}

}  // namespace

template <typename Float>
void attention_forward_plain(Float* out, float* lse, const Float* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                             std::int64_t NH, cudaStream_t stream) {
  const Shape shape = shape_of(B, T, C, NH);
  const std::size_t bytes = shared_bytes(plain_forward_kernel<Float>, shape);
  plain_forward_kernel<Float><<<blocks_of(shape), kThreads, bytes, stream>>>(out, lse, qkv, shape);
  CUDA_CHECK(cudaGetLastError());
}

template <typename Float>
void attention_backward_plain(Float* dqkv, const Float* dout, const Float* qkv, const float* lse, const float* delta,
                              std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH, cudaStream_t stream) {
  const Shape shape = shape_of(B, T, C, NH);
  const std::size_t bytes = shared_bytes(plain_backward_query_kernel<Float>, shape);
  shared_bytes(plain_backward_key_kernel<Float>, shape);
  plain_backward_query_kernel<Float><<<blocks_of(shape), kThreads, bytes, stream>>>(dqkv, dout, qkv, lse, delta, shape);
  CUDA_CHECK(cudaGetLastError());
  plain_backward_key_kernel<Float><<<blocks_of(shape), kThreads, bytes, stream>>>(dqkv, dout, qkv, lse, delta, shape);
  CUDA_CHECK(cudaGetLastError());
}

#define TRAIN_GPT_INSTANTIATE(Float)                                                                                   \
  template void attention_forward_plain<Float>(Float*, float*, const Float*, std::int64_t, std::int64_t, std::int64_t, \
                                               std::int64_t, cudaStream_t);                                            \
  template void attention_backward_plain<Float>(Float*, const Float*, const Float*, const float*, const float*,        \
                                                std::int64_t, std::int64_t, std::int64_t, std::int64_t, cudaStream_t);
TRAIN_GPT_INSTANTIATE(float)
TRAIN_GPT_INSTANTIATE(bf16)

}  // namespace train_gpt::cuda
