// Tiles of bf16 rows in shared memory and their products on tensor cores, for attention_flash.cu.
//
// A row of kSize elements is kSize / 8 chunks of 16 bytes; chunk c of row r lies at place c xor (r mod 8), so that the
// eight rows of one chunk that ldmatrix reads at a time, and the chunks that a copy writes, fall into different banks.
//
// Fragments are those of mma.m16n8k16 (ptx.cuh): with group = lane / 4 and t = lane % 4 a lane holds, of a product of
// 16 rows, columns 8 n + 2 t and + 1 of rows group (elements 0, 1) and group + 8 (elements 2, 3) in sum[n].
#pragma once

#include <cstring>

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"

namespace train_gpt::cuda {

inline constexpr int kTileThreads = 128;

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }

template <int kSize>
__device__ __forceinline__ const bf16* chunk_at(const bf16* tile, int row, int chunk) {
  return tile + row * kSize + 8 * (chunk ^ (row & 7));
}

// Starts copying rows first .. first + kRows - 1 of a head whose rows are `stride` elements apart; zeros from row `end`
// on. The whole block takes part. The rows are there after cp_async_wait_all and a barrier.
template <int kSize, int kRows>
__device__ __forceinline__ void fetch(bf16* tile, const bf16* head, std::int64_t stride, std::int64_t first,
                                      std::int64_t end) {
  constexpr int kChunks = kSize / 8;
  static_assert(kRows * kChunks % kTileThreads == 0);
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kTileThreads; ++i) {
    const int index = i * kTileThreads + static_cast<int>(threadIdx.x);
    const int row = index / kChunks, chunk = index % kChunks;
    const bool present = first + row < end;
    const bf16* from = head + (present ? first + row : 0) * stride + 8 * chunk;
    ptx::cp_async_16_zfill(const_cast<bf16*>(chunk_at<kSize>(tile, row, chunk)), from, present ? 16 : 0);
  }
}

// sum(16, kColumns) += A B^T with A = 16 rows of tile a from a_row on, B = the first kColumns rows of tile b.
template <int kSize, int kColumns>
__device__ __forceinline__ void multiply_by_rows(float (&sum)[kColumns / 8][4], const bf16* a, int a_row,
                                                 const bf16* b) {
  const int lane = lane_index();
#pragma unroll 2  // more would keep more addresses in registers than there are
  for (int k = 0; k < kSize / 16; ++k) {
    std::uint32_t of_a[4];
    ptx::ldmatrix_x4(of_a, chunk_at<kSize>(a, a_row + lane % 16, 2 * k + lane / 16));
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      std::uint32_t of_b[4];
      ptx::ldmatrix_x4(of_b, chunk_at<kSize>(b, 16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
      const std::uint32_t left[2] = {of_b[0], of_b[1]}, right[2] = {of_b[2], of_b[3]};
      ptx::mma_m16n8k16_bf16(sum[2 * n], of_a, left);
      ptx::mma_m16n8k16_bf16(sum[2 * n + 1], of_a, right);
    }
  }
}

// Two floats rounded to bf16, the first in the low half.
__device__ __forceinline__ std::uint32_t rounded_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

// sum(16, kSize) += P B with P(16, kRows) a result of multiply_by_rows, rounded to bf16, and B = the first kRows rows
// of b.
template <int kSize, int kRows>
__device__ __forceinline__ void multiply_rows(float (&sum)[kSize / 8][4], const float (&p)[kRows / 8][4],
                                              const bf16* b) {
  const int lane = lane_index();
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    const std::uint32_t of_p[4] = {rounded_pair(p[2 * k][0], p[2 * k][1]), rounded_pair(p[2 * k][2], p[2 * k][3]),
                                   rounded_pair(p[2 * k + 1][0], p[2 * k + 1][1]),
                                   rounded_pair(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < kSize / 16; ++n) {
      std::uint32_t of_b[4];
      ptx::ldmatrix_x4_trans(of_b, chunk_at<kSize>(b, 16 * k + lane % 16, 2 * n + lane / 16));
      const std::uint32_t left[2] = {of_b[0], of_b[1]}, right[2] = {of_b[2], of_b[3]};
      ptx::mma_m16n8k16_bf16(sum[2 * n], of_p, left);
      ptx::mma_m16n8k16_bf16(sum[2 * n + 1], of_p, right);
    }
  }
}

// Rows first .. first + 15 of a head, those before `end` only, = sum * factor; factor[i] belongs to row group + 8 i.
// They take the way over the warp's own 16 rows of `tile`, which nobody else reads any more: 16 bytes go out at a time,
// and whole rows of a head together.
template <int kSize>
__device__ __forceinline__ void store_rows(bf16* head, std::int64_t stride, std::int64_t first, std::int64_t end,
                                           bf16* tile, const float (&sum)[kSize / 8][4], const float (&factor)[2]) {
  const int lane = lane_index(), own = 16 * warp_index();
  __syncwarp();  // the other lanes have read their fragments
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
      bf16* chunk = const_cast<bf16*>(chunk_at<kSize>(tile, own + lane / 4 + 8 * half, n));
      *reinterpret_cast<std::uint32_t*>(chunk + 2 * (lane % 4)) =
          rounded_pair(sum[n][2 * half] * factor[half], sum[n][2 * half + 1] * factor[half]);
    }
  }
  __syncwarp();
  constexpr int kChunks = kSize / 8;
#pragma unroll
  for (int i = 0; i < 16 * kChunks / kWarp; ++i) {
    const int index = i * kWarp + lane, row = index / kChunks, chunk = index % kChunks;
    if (first + row >= end) continue;
    *reinterpret_cast<uint4*>(head + (first + row) * stride + 8 * chunk) =
        *reinterpret_cast<const uint4*>(chunk_at<kSize>(tile, own + row, chunk));
  }
}

// Over the four lanes that share a row.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

}  // namespace train_gpt::cuda
