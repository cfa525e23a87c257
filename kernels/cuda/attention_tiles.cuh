// Tiles of bf16 rows in shared memory and their products on tensor cores, for attention_flash_*.cu.
//
// A row of kSize elements is kSize / 8 chunks of 16 bytes; chunk c of row r lies at place c xor (r mod 8), so that the
// eight rows of one chunk that ldmatrix reads at a time, and the chunks that a copy writes, fall into different banks.
//
// Fragments are those of mma.m16n8k16 (ptx.cuh): with group = lane / 4 and t = lane % 4 a lane holds, of a product of
// 16 kTall rows, columns 8 n + 2 t and + 1 of rows 16 m + group (elements 0, 1) and 16 m + group + 8 (elements 2, 3) in
// sum[m][n]. Each piece of the right factor that is loaded serves kTall products: with kTall = 2 a product takes 256
// bytes of shared memory, and the tensor cores of an H100 are the limit, not its shared memory.
#pragma once

#include <cstring>

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"

namespace train_gpt::cuda {

inline constexpr int kTileThreads = 128;
inline constexpr int kTileWarps = kTileThreads / kWarp;

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }
// The same, and addresses that follow from it are not kept from one use to the next.
__device__ __forceinline__ int fresh_lane_index() {
  int lane = lane_index();
  ptx::forget_value(lane);
  return lane;
}

template <int kSize>
__device__ __forceinline__ const bf16* chunk_at(const bf16* tile, int row, int chunk) {
  return tile + row * kSize + 8 * (chunk ^ (row & 7));
}

// Starts copying rows first .. first + kRows - 1 of a head whose rows are `stride` elements apart; zeros from row `end`
// on. The whole block takes part. The rows are there after cp_async_wait_all and a barrier.
template <int kSize, int kRows>
__device__ __forceinline__ void fetch(bf16* tile, const bf16* head, std::int64_t stride, int first, int end) {
  constexpr int kChunks = kSize / 8;
  static_assert(kRows * kChunks % kTileThreads == 0);
  int thread = static_cast<int>(threadIdx.x);
  ptx::forget_value(thread);
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kTileThreads; ++i) {
    const int index = i * kTileThreads + thread;
    const int row = index / kChunks, chunk = index % kChunks;
    const bool present = first + row < end;
    const bf16* from = head + std::int64_t{present ? first + row : 0} * stride + 8 * chunk;
    ptx::cp_async_16_zfill(const_cast<bf16*>(chunk_at<kSize>(tile, row, chunk)), from, present ? 16 : 0);
  }
}

// Two products with the two right factors of 8 columns that one ldmatrix_x4 brings.
__device__ __forceinline__ void multiply_pair(float (&left_sum)[4], float (&right_sum)[4], const std::uint32_t (&a)[4],
                                              const std::uint32_t (&b)[4]) {
  const std::uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
  ptx::mma_m16n8k16_bf16(left_sum, a, left);
  ptx::mma_m16n8k16_bf16(right_sum, a, right);
}

// sum(16 kTall, kColumns) += A B^T with A = 16 kTall rows of tile a from a_row on, B = the first kColumns rows of b.
template <int kSize, int kColumns, int kTall>
__device__ __forceinline__ void multiply_by_rows(float (&sum)[kTall][kColumns / 8][4], const bf16* a, int a_row,
                                                 const bf16* b) {
  const int lane = fresh_lane_index();
  constexpr int kTogether = kSize == 64 ? 4 : 2;  // more would need too many registers for addresses
#pragma unroll kTogether
  for (int k = 0; k < kSize / 16; ++k) {
    std::uint32_t of_a[kTall][4];
#pragma unroll
    for (int m = 0; m < kTall; ++m) {
      ptx::ldmatrix_x4(of_a[m], chunk_at<kSize>(a, a_row + 16 * m + lane % 16, 2 * k + lane / 16));
    }
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      std::uint32_t of_b[4];
      ptx::ldmatrix_x4(of_b, chunk_at<kSize>(b, 16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int m = 0; m < kTall; ++m) multiply_pair(sum[m][2 * n], sum[m][2 * n + 1], of_a[m], of_b);
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

// A result of multiply_by_rows rounded to bf16: [m][n][0] of row group, [m][n][1] of row group + 8.
template <int kTall, int kCount>
__device__ __forceinline__ void round_pairs(std::uint32_t (&pairs)[kTall][kCount][2],
                                            const float (&p)[kTall][kCount][4]) {
#pragma unroll
  for (int m = 0; m < kTall; ++m) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      pairs[m][n][0] = rounded_pair(p[m][n][0], p[m][n][1]);
      pairs[m][n][1] = rounded_pair(p[m][n][2], p[m][n][3]);
    }
  }
}

// sum(16 kTall, kSize) += P B with P(16 kTall, kRows) of round_pairs and B = the first kRows rows of b.
template <int kSize, int kRows, int kTall>
__device__ __forceinline__ void multiply_rows(float (&sum)[kTall][kSize / 8][4],
                                              const std::uint32_t (&p)[kTall][kRows / 8][2], const bf16* b) {
  const int lane = fresh_lane_index();
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kSize / 16; ++n) {
      std::uint32_t of_b[4];
      ptx::ldmatrix_x4_trans(of_b, chunk_at<kSize>(b, 16 * k + lane % 16, 2 * n + lane / 16));
#pragma unroll
      for (int m = 0; m < kTall; ++m) {
        const std::uint32_t of_p[4] = {p[m][2 * k][0], p[m][2 * k][1], p[m][2 * k + 1][0], p[m][2 * k + 1][1]};
        multiply_pair(sum[m][2 * n], sum[m][2 * n + 1], of_p, of_b);
      }
    }
  }
}

// Rows first .. first + 15 of a head, those before `end` only, = sum * factor; factor[i] belongs to row group + 8 i.
// They pass through 16 rows of `tile` from `own` on, which nobody else reads any more, so that 16 bytes go out at a
// time, and whole rows of a head together.
template <int kSize>
__device__ __forceinline__ void store_rows(bf16* head, std::int64_t stride, int first, int end, bf16* tile, int own,
                                           const float (&sum)[kSize / 8][4], const float (&factor)[2]) {
  const int lane = lane_index();
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
    *reinterpret_cast<uint4*>(head + std::int64_t{first + row} * stride + 8 * chunk) =
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
