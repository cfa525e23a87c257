// The gradient of attention_flash_forward.cu in five products (FlashAttention-2, Dao 2023), each gradient summed in one
// order. A block owns 128 keys (64 with heads of 128), a warp a quarter of them; queries pass by, the last first, 32 at
// a time, and are copied (cp.async) while those before are multiplied. Queries before the block's keys are skipped,
// only those around them are masked.
//
//   S^T = K Q^T, dP^T = V dO^T, dS = P (dP - delta), dV += P^T dO, dK += dS^T Q      by each warp for its keys
//   dQ += dS K                                                                     by the whole block, dS in shared
//   memory
//
// The gradient of a query is a sum over blocks of keys. They add to it in turn, the first keys first: 32 queries have a
// counter, and block n waits until it stands at n. Sums lie in fp32 in scratch that L2 holds; the last to add, whose
// keys are the queries' own, writes bf16. Blocks take their work by ticket, the first keys first, so a block only waits
// for blocks that have started before it, on whatever number of multiprocessors. Those that start together are a step
// apart from then on: they wait once, and others of the multiprocessor compute meanwhile.
//
// FLOPs, causal: 5 B T^2 C. B = 8, T = 1024, C = 768: 32 GFLOP. Bytes: 9 e B T C (113 MB in the example), and 8 bytes
// per element of dQ and block of keys in L2 (226 MB). Bound by tensor cores and shared memory (README.md: counts from
// SASS): the example takes at least 52 us on an H100 or H200, and 104 us on an A100.
#include <cmath>

#include "kernels/cuda/attention_blocks.cuh"
#include "kernels/cuda/attention_delta.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_tiles.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kQueries = 32;

template <int kSize>
constexpr int kTall = kSize == 64 ? 2 : 1;  // stretches of 16 keys of a warp
template <int kSize>
constexpr int kKeys = kTileWarps * 16 * kTall<kSize>;

template <int kSize>
struct BackwardTiles {
  bf16 k[kKeys<kSize> * kSize];
  bf16 v[kKeys<kSize> * kSize];
  bf16 q[2][kQueries * kSize];
  bf16 dout[2][kQueries * kSize];
  bf16 ds[kKeys<kSize> * kQueries];  // transposed
  float lse_log2[2][kQueries];
  float delta[2][kQueries];
  unsigned ticket;
};

// Where blocks add up dQ, per head and 32 queries: sums as float4 in the order of the fragments, and how many blocks of
// keys have added theirs.
struct QuerySums {
  float4* sum;
  unsigned* turn;
  unsigned* ticket;
};

// ---- one block after the other -----------------------------------------------------------------------------------

__device__ __forceinline__ void wait_for_turn(unsigned* turn, unsigned mine) {
  while (atomicAdd(turn, 0U) != mine) __nanosleep(100);
  __threadfence();
}

// Called by one thread, after a barrier.
__device__ __forceinline__ void end_turn(unsigned* turn) {
  __threadfence();
  atomicAdd(turn, 1U);
}

// ---- tiles -------------------------------------------------------------------------------------------------------

template <int kSize>
__device__ __forceinline__ void fetch_queries(BackwardTiles<kSize>& tiles, int buffer, const bf16* q, const bf16* dout,
                                              const float* lse, const float* delta, const AttentionShape& shape,
                                              int first) {
  const int T = static_cast<int>(shape.T);
  fetch<kSize, kQueries>(tiles.q[buffer], q, 3 * shape.C, first, T);
  fetch<kSize, kQueries>(tiles.dout[buffer], dout, shape.C, first, T);
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kQueries) return;
  const bool present = first + i < T;
  tiles.lse_log2[buffer][i] = present ? lse[first + i] * kLog2E : INFINITY;  // exp(s - lse) = 0: no contribution
  tiles.delta[buffer][i] = present ? delta[first + i] : 0.0F;
}

// Chunk c of row r of dS^T, whose rows have four chunks, lies at place c xor (r / 2 mod 4): two rows share 128 bytes.
__device__ __forceinline__ bf16* ds_chunk(bf16* ds, int row, int chunk) {
  return ds + row * kQueries + 8 * (chunk ^ (row / 2 & 3));
}

// Scores of keys beyond the query become -infinity; rows are keys.
template <int kRows>
__device__ __forceinline__ void mask_keys(float (&s)[kRows][kQueries / 8][4], int first_query, int first_key) {
  const int lane = fresh_lane_index();
  const int first = first_key - first_query + lane / 4;  // the first column that sees row 0 of the lane
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (8 * n + 2 * (lane % 4) + i % 2 < first + 16 * m + i / 2 * 8) s[m][n][i] = -INFINITY;
      }
    }
  }
}

// s becomes P^T, dp becomes dS^T.
template <int kRows>
__device__ __forceinline__ void differentiate_softmax(float (&s)[kRows][kQueries / 8][4],
                                                      float (&dp)[kRows][kQueries / 8][4], const float* lse_log2,
                                                      const float* delta, float scale_log2) {
#pragma unroll
  for (int n = 0; n < kQueries / 8; ++n) {
    const int column = 8 * n + 2 * (lane_index() % 4);
    const float2 normaliser = *reinterpret_cast<const float2*>(lse_log2 + column);
    const float2 shift = *reinterpret_cast<const float2*>(delta + column);
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][n][i] = ptx::exp2_approximate(fmaf(s[m][n][i], scale_log2, i % 2 == 0 ? -normaliser.x : -normaliser.y));
        dp[m][n][i] = s[m][n][i] * (dp[m][n][i] - (i % 2 == 0 ? shift.x : shift.y));
      }
    }
  }
}

template <int kRows>
__device__ __forceinline__ void keep_ds(bf16* ds, int own, const std::uint32_t (&pairs)[kRows][kQueries / 8][2]) {
  const int lane = fresh_lane_index();
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        bf16* chunk = ds_chunk(ds, own + 16 * m + lane / 4 + 8 * half, n);
        *reinterpret_cast<std::uint32_t*>(chunk + 2 * (lane % 4)) = pairs[m][n][half];
      }
    }
  }
}

// A warp's work on its keys with 32 queries.
template <int kSize>
__device__ __forceinline__ void add_to_keys(float (&dk)[kTall<kSize>][kSize / 8][4],
                                            float (&dv)[kTall<kSize>][kSize / 8][4], BackwardTiles<kSize>& tiles,
                                            int now, int first_query, int first_key, float scale_log2) {
  constexpr int kRows = kTall<kSize>;
  const int own = 16 * kRows * warp_index();
  float s[kRows][kQueries / 8][4] = {}, dp[kRows][kQueries / 8][4] = {};
  multiply_by_rows<kSize, kQueries>(s, tiles.k, own, tiles.q[now]);
  if (first_query < first_key + 16 * kRows - 1) mask_keys(s, first_query, first_key);
  multiply_by_rows<kSize, kQueries>(dp, tiles.v, own, tiles.dout[now]);
  differentiate_softmax(s, dp, tiles.lse_log2[now], tiles.delta[now], scale_log2);
  std::uint32_t p[kRows][kQueries / 8][2], ds[kRows][kQueries / 8][2];
  round_pairs(p, s);
  round_pairs(ds, dp);
  keep_ds(tiles.ds, own, ds);
  multiply_rows<kSize, kQueries>(dv, p, tiles.dout[now]);
  multiply_rows<kSize, kQueries>(dk, ds, tiles.q[now]);
}

// sum(32, kColumns) = dS K for the warp's quarter of the head, over the first `keys` keys of the block.
template <int kSize, int kColumns>
__device__ __forceinline__ void multiply_ds(float (&sum)[2][kColumns / 8][4], BackwardTiles<kSize>& tiles, int keys) {
  const int lane = fresh_lane_index();
#pragma unroll
  for (int k = 0; k < kKeys<kSize>; k += 16) {
    if (k >= keys) break;
    std::uint32_t of_ds[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      ptx::ldmatrix_x4_trans(of_ds[m], ds_chunk(tiles.ds, k + lane / 16 * 8 + lane % 8, 2 * m + lane / 8 % 2));
    }
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      std::uint32_t of_k[4];
      ptx::ldmatrix_x4_trans(
          of_k, chunk_at<kSize>(tiles.k, k + lane % 16, warp_index() * (kColumns / 8) + 2 * n + lane / 16));
#pragma unroll
      for (int m = 0; m < 2; ++m) multiply_pair(sum[m][2 * n], sum[m][2 * n + 1], of_ds[m], of_k);
    }
  }
}

// Adds the block's share of dQ to `total`, the sums of these queries; the block is the first, a later one, or the last,
// which writes dq.
template <int kSize>
__device__ __forceinline__ void add_to_queries(float4* total, bf16* dq, BackwardTiles<kSize>& tiles,
                                               const AttentionShape& shape, const AttentionPlace& place,
                                               int first_query, float scale) {
  constexpr int kColumns = kSize / kTileWarps;
  const int visible = first_query + kQueries - place.first;
  float sum[2][kColumns / 8][4] = {};
  multiply_ds<kSize, kColumns>(sum, tiles, visible < kKeys<kSize> ? visible : kKeys<kSize>);
  const int lane = lane_index();
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      float4& earlier = total[((warp_index() * 2 + m) * (kColumns / 8) + n) * kWarp + lane];
      float4 now = {sum[m][n][0], sum[m][n][1], sum[m][n][2], sum[m][n][3]};
      if (place.first > 0) {
        const float4 before = __ldcg(&earlier);
        now = {before.x + now.x, before.y + now.y, before.z + now.z, before.w + now.w};
      }
      if (visible > kKeys<kSize>) {
        __stcg(&earlier, now);
        continue;
      }
      const int query = first_query + 16 * m + lane / 4;
      bf16* out = dq + query * (3 * shape.C) + warp_index() * kColumns + 8 * n + 2 * (lane % 4);
      if (query < shape.T) *reinterpret_cast<std::uint32_t*>(out) = rounded_pair(now.x * scale, now.y * scale);
      if (query + 8 < shape.T) {
        *reinterpret_cast<std::uint32_t*>(out + 8 * 3 * shape.C) = rounded_pair(now.z * scale, now.w * scale);
      }
    }
  }
}

template <int kSize>
__global__ void __launch_bounds__(kTileThreads, 2)
    flash_backward_kernel(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* delta,
                          QuerySums sums, AttentionShape shape, float scale) {
  extern __shared__ __align__(128) unsigned char memory[];
  BackwardTiles<kSize>& tiles = *reinterpret_cast<BackwardTiles<kSize>*>(memory);
  if (threadIdx.x == 0) tiles.ticket = atomicAdd(sums.ticket, 1U);
  __syncthreads();
  const auto heads = static_cast<unsigned>(shape.heads);
  const int head = static_cast<int>(heads - 1 - tiles.ticket % heads), block = static_cast<int>(tiles.ticket / heads);
  const AttentionPlace place = attention_place(shape, head, block * kKeys<kSize>);
  const std::int64_t stride = 3 * shape.C;
  const int T = static_cast<int>(shape.T), stretches = (T + kQueries - 1) / kQueries;
  const bf16* q = head_of<kSize>(qkv, shape, place, 0);
  const bf16* dout_head = head_of_out<kSize>(dout, shape, place);
  bf16* dq = head_of<kSize>(dqkv, shape, place, 0);
  const float* lse_head = lse + std::int64_t{head} * T;
  const float* delta_head = delta + std::int64_t{head} * T;
  float4* sum = sums.sum + std::int64_t{head} * stretches * (kQueries * kSize / 4);
  unsigned* turn = sums.turn + std::int64_t{head} * stretches;
  const int own = 16 * kTall<kSize> * warp_index();
  const int first_key = place.first + own, last = place.first / kQueries;

  fetch<kSize, kKeys<kSize>>(tiles.k, head_of<kSize>(qkv, shape, place, 1), stride, place.first, T);
  fetch<kSize, kKeys<kSize>>(tiles.v, head_of<kSize>(qkv, shape, place, 2), stride, place.first, T);
  fetch_queries(tiles, 0, q, dout_head, lse_head, delta_head, shape, (stretches - 1) * kQueries);
  float dk[kTall<kSize>][kSize / 8][4] = {}, dv[kTall<kSize>][kSize / 8][4] = {};
  int now = 0;
  for (int stretch = stretches - 1; stretch >= last; --stretch, now ^= 1) {
    const int query = stretch * kQueries;
    ptx::cp_async_wait_all();
    __syncthreads();  // queries are there, the other buffers and dS are read no more, all have added to dQ
    if (threadIdx.x == 0 && stretch + 1 < stretches) end_turn(turn + stretch + 1);
    if (stretch > last) {
      fetch_queries(tiles, now ^ 1, q, dout_head, lse_head, delta_head, shape, query - kQueries);
    }
    if (first_key < query + kQueries) add_to_keys<kSize>(dk, dv, tiles, now, query, first_key, scale * kLog2E);
    if (threadIdx.x == 0) wait_for_turn(turn + stretch, static_cast<unsigned>(block));
    __syncthreads();  // dS is there, and it is the block's turn
    add_to_queries<kSize>(sum + std::int64_t{stretch} * (kQueries * kSize / 4), dq, tiles, shape, place, query, scale);
  }
  __syncthreads();  // nobody reads the keys any more
  if (threadIdx.x == 0) end_turn(turn + last);
#pragma unroll
  for (int m = 0; m < kTall<kSize>; ++m) {
    store_rows<kSize>(head_of<kSize>(dqkv, shape, place, 1), stride, first_key + 16 * m, T, tiles.k, own + 16 * m,
                      dk[m], {scale, scale});
    store_rows<kSize>(head_of<kSize>(dqkv, shape, place, 2), stride, first_key + 16 * m, T, tiles.v, own + 16 * m,
                      dv[m], {1.0F, 1.0F});
  }
}

// ---- launches ----------------------------------------------------------------------------------------------------

// The parts of the scratch, in this order: dQ's sums, the counters, delta.
struct Scratch {
  std::int64_t sums, counters, deltas;  // elements
  std::int64_t bytes() const { return 4 * (sums + counters + deltas); }
};

Scratch scratch_parts(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) {
  const std::int64_t stretches = B * NH * ((T + kQueries - 1) / kQueries);
  return {.sums = stretches * kQueries * (C / NH), .counters = stretches + 1, .deltas = B * NH * T};
}

template <int kSize>
void launch(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* delta, const QuerySums& sums,
            const AttentionShape& shape, cudaStream_t stream) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(kSize));
  const auto blocks = static_cast<unsigned>(blocks_for(shape.T, kKeys<kSize>) * shape.heads);
  const int bytes = allow_shared_memory<BackwardTiles<kSize>>(flash_backward_kernel<kSize>);
  flash_backward_kernel<kSize>
      <<<blocks, kTileThreads, bytes, stream>>>(dqkv, dout, qkv, lse, delta, sums, shape, scale);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

std::int64_t flash_backward_scratch_bytes(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) {
  return scratch_parts(B, T, C, NH).bytes();
}

void attention_backward_flash(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse,
                              void* scratch, std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH,
                              cudaStream_t stream) {
  const Scratch parts = scratch_parts(B, T, C, NH);
  auto* sum = static_cast<float*>(scratch);
  auto* counter = reinterpret_cast<unsigned*>(sum + parts.sums);
  auto* delta = reinterpret_cast<float*>(counter + parts.counters);
  CUDA_CHECK(cudaMemsetAsync(counter, 0, parts.counters * sizeof *counter, stream));
  attention_delta(delta, dout, out, B, T, C, NH, stream);
  const auto run = C / NH == 64 ? launch<64> : launch<128>;
  run(dqkv, dout, qkv, lse, delta, {reinterpret_cast<float4*>(sum), counter + 1, counter}, attention_shape(B, T, C, NH),
      stream);
}

}  // namespace train_gpt::cuda
