// Causal attention on tensor cores: FlashAttention-2 (Dao 2023; online softmax: Milakov and Gimelshein 2018) with
// mma.sync m16n8k16, for bf16 and heads of 64 and 128. Each of a block's four warps owns 32 queries of a tile of 128;
// keys and values pass by in shared memory, the next tile being copied (cp.async) while the present one is multiplied:
// one barrier per tile. A warp skips tiles above the diagonal, and masks only those on it.
//
//   S = Q K^T, online softmax, O += P V        2 products per tile
//
// FLOPs, causal: 2 B T^2 C. B = 8, T = 1024, C = 768: 13 GFLOP. Bytes: 4 e B T C (50 MB in the example); tiles are read
// again from L2. Bound by tensor cores (README.md: counts from SASS). mma.sync reaches about 62% of the dense bf16 peak
// of an H100 or H200 (990 TFLOP/s; more needs wgmma) and nearly all of an A100's (312): the example takes at least 21
// us there, 42 us on an A100.
#include <cmath>

#include "kernels/cuda/attention_blocks.cuh"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_tiles.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kTall = 2;  // stretches of 16 queries of a warp
constexpr int kRowsOfWarp = 16 * kTall;
constexpr int kRows = kTileWarps * kRowsOfWarp;

// Tiles of keys have as many rows as registers allow.
template <int kSize>
constexpr int kKeys = kSize == 64 ? 64 : 32;

template <int kSize>
struct ForwardTiles {
  bf16 q[kRows * kSize];
  bf16 k[2][kKeys<kSize> * kSize];
  bf16 v[2][kKeys<kSize> * kSize];
};

// Blocks with the most work come first: the last queries.
__device__ __forceinline__ AttentionPlace place_of_block(const AttentionShape& shape) {
  const auto heads = static_cast<unsigned>(shape.heads);
  const int tile = static_cast<int>(blockIdx.x / heads), tiles = (static_cast<int>(shape.T) + kRows - 1) / kRows;
  return attention_place(shape, static_cast<int>(blockIdx.x % heads), (tiles - 1 - tile) * kRows);
}

// Scores of keys beyond the query become -infinity.
template <int kCount>
__device__ __forceinline__ void mask_keys(float (&s)[kTall][kCount][4], int first_query, int first_key) {
  const int lane = lane_index();
  const int last = first_query - first_key + lane / 4;  // the last column that row 0 of the lane sees
#pragma unroll
  for (int m = 0; m < kTall; ++m) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (8 * n + 2 * (lane % 4) + i % 2 > last + 16 * m + i / 2 * 8) s[m][n][i] = -INFINITY;
      }
    }
  }
}

// For the two rows that a lane has of 16. Every query sees a key of the first tile: largest is finite from then on.
struct RunningSoftmax {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
};

// s becomes exp(scale (s - largest)); shrink is the factor for earlier sums.
template <int kCount>
__device__ __forceinline__ void fold(RunningSoftmax& softmax, float (&shrink)[2], float (&s)[kCount][4],
                                     float scale_log2) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = softmax.largest[half];
#pragma unroll
    for (int n = 0; n < kCount; ++n) largest = fmaxf(largest, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    largest = row_max(largest);
    shrink[half] = ptx::exp2_approximate((softmax.largest[half] - largest) * scale_log2);
    softmax.largest[half] = largest;
    const float shift = -largest * scale_log2;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        s[n][i] = ptx::exp2_approximate(fmaf(s[n][i], scale_log2, shift));
        sum += s[n][i];
      }
    }
    softmax.sum[half] = softmax.sum[half] * shrink[half] + sum;
  }
}

template <int kSize>
__device__ __forceinline__ void attend(float (&result)[kTall][kSize / 8][4], RunningSoftmax (&softmax)[kTall],
                                       ForwardTiles<kSize>& tiles, int now, int first_query, int key, float scale) {
  float s[kTall][kKeys<kSize> / 8][4] = {};
  multiply_by_rows<kSize, kKeys<kSize>>(s, tiles.q, kRowsOfWarp * warp_index(), tiles.k[now]);
  if (key + kKeys<kSize> - 1 > first_query) mask_keys(s, first_query, key);
#pragma unroll
  for (int m = 0; m < kTall; ++m) {
    float shrink[2];
    fold(softmax[m], shrink, s[m], scale * kLog2E);
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) result[m][n][i] *= shrink[i / 2];
    }
  }
  std::uint32_t p[kTall][kKeys<kSize> / 8][2];
  round_pairs(p, s);
  multiply_rows<kSize, kKeys<kSize>>(result, p, tiles.v[now]);
}

template <int kSize>
__global__ void __launch_bounds__(kTileThreads, 2)
    flash_forward_kernel(bf16* out, float* lse, const bf16* qkv, AttentionShape shape, float scale) {
  extern __shared__ __align__(128) unsigned char memory[];
  ForwardTiles<kSize>& tiles = *reinterpret_cast<ForwardTiles<kSize>*>(memory);
  const AttentionPlace place = place_of_block(shape);
  const std::int64_t stride = 3 * shape.C;
  const int T = static_cast<int>(shape.T);
  const bf16* k = head_of<kSize>(qkv, shape, place, 1);
  const bf16* v = head_of<kSize>(qkv, shape, place, 2);
  const int own = kRowsOfWarp * warp_index();
  const int first_query = place.first + own;
  const int end = place.first + kRows < T ? place.first + kRows : T;  // of the visible keys

  fetch<kSize, kRows>(tiles.q, head_of<kSize>(qkv, shape, place, 0), stride, place.first, T);
  fetch<kSize, kKeys<kSize>>(tiles.k[0], k, stride, 0, T);
  fetch<kSize, kKeys<kSize>>(tiles.v[0], v, stride, 0, T);
  RunningSoftmax softmax[kTall];
  float result[kTall][kSize / 8][4] = {};
  int now = 0;
  for (int key = 0; key < end; key += kKeys<kSize>, now ^= 1) {
    ptx::cp_async_wait_all();
    __syncthreads();  // this tile is there, and nobody reads the other buffer any more
    if (key + kKeys<kSize> < end) {
      fetch<kSize, kKeys<kSize>>(tiles.k[now ^ 1], k, stride, key + kKeys<kSize>, T);
      fetch<kSize, kKeys<kSize>>(tiles.v[now ^ 1], v, stride, key + kKeys<kSize>, T);
    }
    if (key < first_query + kRowsOfWarp) attend(result, softmax, tiles, now, first_query, key, scale);
  }
#pragma unroll
  for (int m = 0; m < kTall; ++m) {
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = row_sum(softmax[m].sum[half]);
      inverse[half] = 1.0F / sum;
      const int query = first_query + 16 * m + lane_index() / 4 + 8 * half;
      if (lane_index() % 4 == 0 && query < T) {
        lse[std::int64_t{place.head} * T + query] = softmax[m].largest[half] * scale + logf(sum);
      }
    }
    store_rows<kSize>(head_of_out<kSize>(out, shape, place), shape.C, first_query + 16 * m, T, tiles.q, own + 16 * m,
                      result[m], inverse);
  }
}

template <int kSize>
void forward(bf16* out, float* lse, const bf16* qkv, const AttentionShape& shape, cudaStream_t stream) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(kSize));
  const auto blocks = static_cast<unsigned>(blocks_for(shape.T, kRows) * shape.heads);
  const int bytes = allow_shared_memory<ForwardTiles<kSize>>(flash_forward_kernel<kSize>);
  flash_forward_kernel<kSize><<<blocks, kTileThreads, bytes, stream>>>(out, lse, qkv, shape, scale);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void attention_forward_flash(bf16* out, float* lse, const bf16* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                             std::int64_t NH, cudaStream_t stream) {
  const auto run = C / NH == 64 ? forward<64> : forward<128>;
  run(out, lse, qkv, attention_shape(B, T, C, NH), stream);
}

}  // namespace train_gpt::cuda
