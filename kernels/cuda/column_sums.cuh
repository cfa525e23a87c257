// Sums down the columns of a row-major matrix, in two stages over blocks of rows fixed by the shape: no atomics, and
// the same order whatever the launch does.
//
//   stage 1   a block sums 256 rows of a strip of columns: 32 groups of threads take every 32nd row, then the groups
//             are added in order; result in `partial`(outputs, row blocks, columns)
//   stage 2   one thread per column adds the row blocks in order, and the total to the result
//
// Bound by reading the matrix (the file of each Term says how many bytes); the partial sums are 1/64 of a bf16 matrix.
//
// A Term is a struct with `template <int W> void operator()(row, column, float (&values)[kOutputs][W]) const`: the
// terms of columns column .. column + W - 1 of a row.
#pragma once

#include "kernels/cuda/check.h"
#include "kernels/cuda/packs.cuh"

namespace train_gpt::cuda {

inline constexpr int kSumRows = 256;
inline constexpr int kSumGroups = 32;
inline constexpr int kSumLanes = 8;
inline constexpr int kSumThreads = kSumGroups * kSumLanes;

inline std::int64_t column_sums_scratch_bytes(std::int64_t outputs, std::int64_t rows, std::int64_t columns) {
  return outputs * blocks_for(rows, kSumRows) * columns * static_cast<std::int64_t>(sizeof(float));
}

// The place of element i of a lane's pack in a row of sums in shared memory, and the column of the strip whose sum a
// place holds. Packs of more than 16 bytes are taken apart: what eight lanes store at a time lies side by side, in
// different banks.
template <int kWidth>
struct PlacesOfSums {
  static constexpr int kPart = kWidth < 4 ? kWidth : 4;
  static constexpr int kParts = kSumLanes * kPart;
  __device__ static int of(int lane, int i) { return i / kPart * kParts + lane * kPart + i % kPart; }
  __device__ static int column(int place) {
    return place % kParts / kPart * kWidth + place / kParts * kPart + place % kPart;
  }
};

template <int kOutputs, int kWidth, typename Term>
__global__ void __launch_bounds__(kSumThreads)
    column_sums_of_rows(float* partial, std::int64_t rows, std::int64_t columns, Term term) {
  __shared__ float sums[kOutputs][kSumGroups][kSumLanes * kWidth];
  const int group = static_cast<int>(threadIdx.x) / kSumLanes, lane = static_cast<int>(threadIdx.x) % kSumLanes;
  const std::int64_t strip = std::int64_t{blockIdx.x} * kSumLanes * kWidth;
  const std::int64_t column = strip + lane * kWidth;
  const std::int64_t begin = std::int64_t{blockIdx.y} * kSumRows;
  const std::int64_t end = begin + kSumRows < rows ? begin + kSumRows : rows;
  float total[kOutputs][kWidth] = {};
  if (column < columns) {
    for (std::int64_t row = begin + group; row < end; row += kSumGroups) {
      float values[kOutputs][kWidth];
      term(row, column, values);
#pragma unroll
      for (int k = 0; k < kOutputs; ++k) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) total[k][i] += values[k][i];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kOutputs; ++k) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[k][group][PlacesOfSums<kWidth>::of(lane, i)] = total[k][i];
  }
  __syncthreads();
  const int place = static_cast<int>(threadIdx.x);
  if (place >= kSumLanes * kWidth) return;
  const std::int64_t column_of_sum = strip + PlacesOfSums<kWidth>::column(place);
  if (column_of_sum >= columns) return;
  for (int k = 0; k < kOutputs; ++k) {
    float sum = 0;
    for (int g = 0; g < kSumGroups; ++g) sum += sums[k][g][place];
    partial[(k * std::int64_t{gridDim.y} + blockIdx.y) * columns + column_of_sum] = sum;
  }
}

template <int kOutputs>
struct ColumnResults {
  float* sums[kOutputs];
};

template <int kOutputs>
__global__ void __launch_bounds__(kSumThreads)
    column_sums_of_blocks(ColumnResults<kOutputs> results, const float* partial, std::int64_t row_blocks,
                          std::int64_t columns) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  if (column >= columns) return;
#pragma unroll
  for (int k = 0; k < kOutputs; ++k) {
    float sum = 0;
    for (std::int64_t b = 0; b < row_blocks; ++b) sum += partial[(k * row_blocks + b) * columns + column];
    results.sums[k][column] += sum;
  }
}

// results.sums[k][c] += sum over rows of term.
template <int kOutputs, int kWidth, typename Term>
void add_column_sums(ColumnResults<kOutputs> results, std::int64_t rows, std::int64_t columns, const Term& term,
                     float* partial, cudaStream_t stream) {
  const dim3 grid(blocks_for(columns, kSumLanes * kWidth), blocks_for(rows, kSumRows));
  column_sums_of_rows<kOutputs, kWidth, Term><<<grid, kSumThreads, 0, stream>>>(partial, rows, columns, term);
  CUDA_CHECK(cudaGetLastError());
  column_sums_of_blocks<kOutputs>
      <<<blocks_for(columns, kSumThreads), kSumThreads, 0, stream>>>(results, partial, grid.y, columns);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace train_gpt::cuda
