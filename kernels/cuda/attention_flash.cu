// Causal attention on tensor cores: FlashAttention-2 (Dao 2023; online softmax: Milakov and Gimelshein 2018) with
// mma.sync m16n8k16, for bf16 and heads of 64 and 128. Four warps of a block own 16 rows each of a tile of 64; tiles of
// the other side pass by in shared memory, the next one being copied (cp.async) while the present one is multiplied:
// one barrier per tile. Tiles above the diagonal are skipped, only those on it are masked.
//
//   forward        S = Q K^T, online softmax, O += P V                                  2 products per tile
//   backward, kv   S^T = K Q^T, dP^T = V dO^T, dS = P (dP - delta), dV += P^T dO, dK += dS^T Q        4 products
//   backward, q    S = Q K^T, dP = dO V^T, dQ += dS K                                                 3 products
//                  S and dP are computed twice, so that every gradient is summed by one warp in order of position:
//                  deterministic without atomics and without a buffer for dQ in fp32.
//
// FLOPs, causal: forward 2 B T^2 C, backward 7 B T^2 C (5 with atomics). B = 8, T = 1024, C = 768: 13 and 45 GFLOP.
// Bytes: 4 e B T C forward (50 MB in the example), 9 e B T C backward; tiles are read again from L2.
// Bound by tensor cores. mma.sync reaches about 60% of the dense bf16 peak of an H100 or H200 (990 TFLOP/s; more needs
// wgmma) and nearly all of an A100's (312): the example takes at least 22 and 76 us there, 42 and 144 us on an A100.
#include <cmath>

#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/check.h"

namespace train_gpt::cuda {
namespace {

constexpr int kRows = 64;  // of the tile that a block owns: 16 per warp
constexpr float kLog2E = 1.44269504F;

struct Shape {
  std::int64_t T, C, NH, heads;  // heads = B * NH
};

// One head of one row of the batch, and the first row of the block's tile.
struct Place {
  std::int64_t b, h, head, first;
};

// Blocks with the most work come first: the last queries, the first keys.
template <bool kLastFirst>
__device__ Place place_of_block(const Shape& shape) {
  const std::int64_t tile = blockIdx.x / shape.heads, head = blockIdx.x % shape.heads;
  const std::int64_t tiles = (shape.T + kRows - 1) / kRows;
  return {head / shape.NH, head % shape.NH, head, (kLastFirst ? tiles - 1 - tile : tile) * kRows};
}

// part: 0 q, 1 k, 2 v of qkv(B,T,3C), or of its gradient.
template <int kSize, typename Element>
__device__ Element* head_of(Element* qkv, const Shape& shape, const Place& place, int part) {
  return qkv + place.b * shape.T * 3 * shape.C + part * shape.C + place.h * kSize;
}
template <int kSize, typename Element>
__device__ Element* head_of_out(Element* out, const Shape& shape, const Place& place) {
  return out + place.b * shape.T * shape.C + place.h * kSize;
}

// Tiles that pass by have kRows rows where registers allow it.
template <int kSize>
constexpr int kPassing = kSize == 64 ? 64 : 32;

// ---- forward
// -----------------------------------------------------------------------------------------------------------

template <int kSize>
struct ForwardTiles {
  bf16 q[kRows * kSize];
  bf16 k[2][kRows * kSize];
  bf16 v[2][kRows * kSize];
};

// Scores of keys beyond the query become -infinity.
template <int kColumns>
__device__ __forceinline__ void mask_keys(float (&s)[kColumns / 8][4], std::int64_t first_query,
                                          std::int64_t first_key) {
  const int lane = lane_index();
  const int last = static_cast<int>(first_query - first_key) + lane / 4;  // the last column that row 0 of the lane sees
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (8 * n + 2 * (lane % 4) + i % 2 > last + i / 2 * 8) s[n][i] = -INFINITY;
    }
  }
}

// Of the two rows of a lane. Every query sees a key of the first tile: largest is finite from then on.
struct RunningSoftmax {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
};

// s becomes exp(scale (s - largest)); shrink is what earlier sums are to be multiplied by.
__device__ __forceinline__ void fold(RunningSoftmax& softmax, float (&shrink)[2], float (&s)[kRows / 8][4],
                                     float scale_log2) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = softmax.largest[half];
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) largest = fmaxf(largest, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    largest = row_max(largest);
    shrink[half] = ptx::exp2_approximate((softmax.largest[half] - largest) * scale_log2);
    softmax.largest[half] = largest;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        s[n][i] = ptx::exp2_approximate((s[n][i] - largest) * scale_log2);
        sum += s[n][i];
      }
    }
    softmax.sum[half] = softmax.sum[half] * shrink[half] + sum;
  }
}

template <int kSize>
__global__ void __launch_bounds__(kTileThreads, 2)
    flash_forward_kernel(bf16* out, float* lse, const bf16* qkv, Shape shape, float scale) {
  extern __shared__ __align__(128) unsigned char memory[];
  ForwardTiles<kSize>& tiles = *reinterpret_cast<ForwardTiles<kSize>*>(memory);
  const Place place = place_of_block<true>(shape);
  const std::int64_t stride = 3 * shape.C, T = shape.T;
  const bf16* k = head_of<kSize>(qkv, shape, place, 1);
  const bf16* v = head_of<kSize>(qkv, shape, place, 2);
  const std::int64_t first_query = place.first + 16 * warp_index();

  fetch<kSize, kRows>(tiles.q, head_of<kSize>(qkv, shape, place, 0), stride, place.first, T);
  fetch<kSize, kRows>(tiles.k[0], k, stride, 0, T);
  fetch<kSize, kRows>(tiles.v[0], v, stride, 0, T);
  RunningSoftmax softmax;
  float result[kSize / 8][4] = {};
  int now = 0;
  for (std::int64_t key = 0; key <= place.first; key += kRows, now ^= 1) {
    ptx::cp_async_wait_all();
    __syncthreads();  // this tile is there, and nobody reads the other buffer any more
    if (key < place.first) {
      fetch<kSize, kRows>(tiles.k[now ^ 1], k, stride, key + kRows, T);
      fetch<kSize, kRows>(tiles.v[now ^ 1], v, stride, key + kRows, T);
    }
    float s[kRows / 8][4] = {};
    multiply_by_rows<kSize, kRows>(s, tiles.q, 16 * warp_index(), tiles.k[now]);
    if (key == place.first) mask_keys<kRows>(s, first_query, key);
    float shrink[2];
    fold(softmax, shrink, s, scale * kLog2E);
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) result[n][i] *= shrink[i / 2];
    }
    multiply_rows<kSize, kRows>(result, s, tiles.v[now]);
  }
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = row_sum(softmax.sum[half]);
    inverse[half] = 1.0F / sum;
    const std::int64_t query = first_query + lane_index() / 4 + 8 * half;
    if (lane_index() % 4 == 0 && query < T) {
      lse[place.head * T + query] = softmax.largest[half] * scale + logf(sum);
    }
  }
  store_rows<kSize>(head_of_out<kSize>(out, shape, place), shape.C, first_query, T, tiles.q, result, inverse);
}

// ---- backward, keys and values
// -----------------------------------------------------------------------------------------

template <int kSize>
struct KeyTiles {
  bf16 k[kRows * kSize];
  bf16 v[kRows * kSize];
  bf16 q[2][kPassing<kSize> * kSize];
  bf16 dout[2][kPassing<kSize> * kSize];
  float lse[2][kPassing<kSize>];
  float delta[2][kPassing<kSize>];
};

template <int kSize>
__device__ __forceinline__ void fetch_queries(KeyTiles<kSize>& tiles, int buffer, const bf16* q, const bf16* dout,
                                              const float* lse, const float* delta, const Shape& shape,
                                              std::int64_t first) {
  constexpr int kQueries = kPassing<kSize>;
  fetch<kSize, kQueries>(tiles.q[buffer], q, 3 * shape.C, first, shape.T);
  fetch<kSize, kQueries>(tiles.dout[buffer], dout, shape.C, first, shape.T);
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kQueries) return;
  const bool present = first + i < shape.T;
  tiles.lse[buffer][i] = present ? lse[first + i] : INFINITY;  // exp(s - lse) = 0: no contribution
  tiles.delta[buffer][i] = present ? delta[first + i] : 0.0F;
}

template <int kSize>
__global__ void __launch_bounds__(kTileThreads, 2)
    flash_backward_key_kernel(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* delta,
                              Shape shape, float scale) {
  constexpr int kQueries = kPassing<kSize>;
  extern __shared__ __align__(128) unsigned char memory[];
  KeyTiles<kSize>& tiles = *reinterpret_cast<KeyTiles<kSize>*>(memory);
  const Place place = place_of_block<false>(shape);
  const std::int64_t stride = 3 * shape.C, T = shape.T;
  const bf16* q = head_of<kSize>(qkv, shape, place, 0);
  const bf16* dout_head = head_of_out<kSize>(dout, shape, place);
  const float* lse_head = lse + place.head * T;
  const float* delta_head = delta + place.head * T;
  const int lane = lane_index();
  const std::int64_t first_key = place.first + 16 * warp_index();

  fetch<kSize, kRows>(tiles.k, head_of<kSize>(qkv, shape, place, 1), stride, place.first, T);
  fetch<kSize, kRows>(tiles.v, head_of<kSize>(qkv, shape, place, 2), stride, place.first, T);
  fetch_queries(tiles, 0, q, dout_head, lse_head, delta_head, shape, place.first);
  float dk[kSize / 8][4] = {}, dv[kSize / 8][4] = {};
  int now = 0;
  for (std::int64_t query = place.first; query < T; query += kQueries, now ^= 1) {
    ptx::cp_async_wait_all();
    __syncthreads();  // these queries are there, and nobody reads the other buffers any more
    if (query + kQueries < T) {
      fetch_queries(tiles, now ^ 1, q, dout_head, lse_head, delta_head, shape, query + kQueries);
    }
    const int first_visible = static_cast<int>(first_key - query) + lane / 4;  // column, for row 0 of the lane
    float p[kQueries / 8][4] = {}, ds[kQueries / 8][4] = {};
    multiply_by_rows<kSize, kQueries>(p, tiles.k, 16 * warp_index(), tiles.q[now]);
    multiply_by_rows<kSize, kQueries>(ds, tiles.v, 16 * warp_index(), tiles.dout[now]);
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * n + 2 * (lane % 4) + i % 2;
        const bool visible = column >= first_visible + i / 2 * 8;
        const float exponent = fmaf(p[n][i], scale * kLog2E, -tiles.lse[now][column] * kLog2E);
        p[n][i] = visible ? ptx::exp2_approximate(exponent) : 0.0F;
        ds[n][i] = p[n][i] * (ds[n][i] - tiles.delta[now][column]);
      }
    }
    multiply_rows<kSize, kQueries>(dv, p, tiles.dout[now]);
    multiply_rows<kSize, kQueries>(dk, ds, tiles.q[now]);
  }
  store_rows<kSize>(head_of<kSize>(dqkv, shape, place, 1), stride, first_key, T, tiles.k, dk, {scale, scale});
  store_rows<kSize>(head_of<kSize>(dqkv, shape, place, 2), stride, first_key, T, tiles.v, dv, {1.0F, 1.0F});
}

// ---- backward, queries
// -------------------------------------------------------------------------------------------------

template <int kSize>
struct QueryTiles {
  bf16 q[kRows * kSize];
  bf16 dout[kRows * kSize];
  bf16 k[2][kPassing<kSize> * kSize];
  bf16 v[2][kPassing<kSize> * kSize];
};

template <int kSize>
__global__ void __launch_bounds__(kTileThreads, 2)
    flash_backward_query_kernel(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* delta,
                                Shape shape, float scale) {
  constexpr int kKeys = kPassing<kSize>;
  extern __shared__ __align__(128) unsigned char memory[];
  QueryTiles<kSize>& tiles = *reinterpret_cast<QueryTiles<kSize>*>(memory);
  const Place place = place_of_block<true>(shape);
  const std::int64_t stride = 3 * shape.C, T = shape.T;
  const bf16* k = head_of<kSize>(qkv, shape, place, 1);
  const bf16* v = head_of<kSize>(qkv, shape, place, 2);
  const std::int64_t first_query = place.first + 16 * warp_index();
  const std::int64_t end = place.first + kRows < T ? place.first + kRows : T;  // of the visible keys

  fetch<kSize, kRows>(tiles.q, head_of<kSize>(qkv, shape, place, 0), stride, place.first, T);
  fetch<kSize, kRows>(tiles.dout, head_of_out<kSize>(dout, shape, place), shape.C, place.first, T);
  fetch<kSize, kKeys>(tiles.k[0], k, stride, 0, T);
  fetch<kSize, kKeys>(tiles.v[0], v, stride, 0, T);
  float normaliser[2], shift[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t query = first_query + lane_index() / 4 + 8 * half;
    normaliser[half] = query < T ? lse[place.head * T + query] * kLog2E : INFINITY;
    shift[half] = query < T ? delta[place.head * T + query] : 0.0F;
  }
  float dq[kSize / 8][4] = {};
  int now = 0;
  for (std::int64_t key = 0; key < end; key += kKeys, now ^= 1) {
    ptx::cp_async_wait_all();
    __syncthreads();  // these keys are there, and nobody reads the other buffers any more
    if (key + kKeys < end) {
      fetch<kSize, kKeys>(tiles.k[now ^ 1], k, stride, key + kKeys, T);
      fetch<kSize, kKeys>(tiles.v[now ^ 1], v, stride, key + kKeys, T);
    }
    float s[kKeys / 8][4] = {}, dp[kKeys / 8][4] = {};
    multiply_by_rows<kSize, kKeys>(s, tiles.q, 16 * warp_index(), tiles.k[now]);
    multiply_by_rows<kSize, kKeys>(dp, tiles.dout, 16 * warp_index(), tiles.v[now]);
    if (key + kKeys > place.first) mask_keys<kKeys>(s, first_query, key);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float p = ptx::exp2_approximate(fmaf(s[n][i], scale * kLog2E, -normaliser[i / 2]));
        s[n][i] = p * (dp[n][i] - shift[i / 2]);
      }
    }
    multiply_rows<kSize, kKeys>(dq, s, tiles.k[now]);
  }
  store_rows<kSize>(head_of<kSize>(dqkv, shape, place, 0), stride, first_query, T, tiles.q, dq, {scale, scale});
}

// ---- launches
// ----------------------------------------------------------------------------------------------------------

Shape shape_of(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) { return {T, C, NH, B * NH}; }

unsigned blocks_of(const Shape& shape) { return static_cast<unsigned>(blocks_for(shape.T, kRows) * shape.heads); }

template <typename Tiles, typename Kernel>
int allow_shared_memory(Kernel* kernel) {
  constexpr int kBytes = static_cast<int>(sizeof(Tiles));
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  return kBytes;
}

template <int kSize>
void forward(bf16* out, float* lse, const bf16* qkv, const Shape& shape, cudaStream_t stream) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(kSize));
  const int bytes = allow_shared_memory<ForwardTiles<kSize>>(flash_forward_kernel<kSize>);
  flash_forward_kernel<kSize><<<blocks_of(shape), kTileThreads, bytes, stream>>>(out, lse, qkv, shape, scale);
  CUDA_CHECK(cudaGetLastError());
}

template <int kSize>
void backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* delta, const Shape& shape,
              cudaStream_t stream) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(kSize));
  const int for_keys = allow_shared_memory<KeyTiles<kSize>>(flash_backward_key_kernel<kSize>);
  flash_backward_key_kernel<kSize>
      <<<blocks_of(shape), kTileThreads, for_keys, stream>>>(dqkv, dout, qkv, lse, delta, shape, scale);
  CUDA_CHECK(cudaGetLastError());
  const int for_queries = allow_shared_memory<QueryTiles<kSize>>(flash_backward_query_kernel<kSize>);
  flash_backward_query_kernel<kSize>
      <<<blocks_of(shape), kTileThreads, for_queries, stream>>>(dqkv, dout, qkv, lse, delta, shape, scale);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void attention_forward_flash(bf16* out, float* lse, const bf16* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                             std::int64_t NH, cudaStream_t stream) {
  const auto run = C / NH == 64 ? forward<64> : forward<128>;
  run(out, lse, qkv, shape_of(B, T, C, NH), stream);
}

void attention_backward_flash(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* delta,
                              std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH, cudaStream_t stream) {
  const auto run = C / NH == 64 ? backward<64> : backward<128>;
  run(dqkv, dout, qkv, lse, delta, shape_of(B, T, C, NH), stream);
}

}  // namespace train_gpt::cuda
