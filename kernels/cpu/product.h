// The matrix product of the cpu device, on one thread. Written here rather than taken from a BLAS because of the bits:
// OpenBLAS and oneDNN choose between kernels by size, so that the sums in a row depend on how many rows there are
// beside it, and both have other sums on other processors. Here an element of a product is
//
//   for each block of kDepthBlock terms or fewer:  sum = 0; for k in the block: sum = fma(left(i, k), right(k, j), sum)
//   out(i, j) = (start(i, j) + scale * sum of the first block) + scale * sum of the second block + ..
//
// whatever the sizes, the cut into tiles, the threads and the width of the vectors: one rule for every processor with
// fused multiply-adds. The structure is that of Goto and van de Geijn 2008 (ACM TOMS 34:12): a tile of kTileRows x
// kTileColumns sums in registers, a panel of the right factor in cache. The left factor is read in place where its rows
// lie along the depth; weights of a forward product of few rows, out = in weight^T, are made the left factor (the
// product is computed transposed), so that the large matrix is not copied.
#pragma once

#include <cstdint>

#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_unit.h"

namespace train_gpt::cpu {

// A row-major factor, element (i, j) at data[i * stride + j], read as its transpose if `transposed`.
struct Factor {
  const float* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;

  const float* at(std::int64_t row, std::int64_t column) const {
    return transposed ? data + column * stride + row : data + row * stride + column;
  }
};

// Where a product goes and what it starts from.
struct Destination {
  float* out = nullptr;  // (rows, columns), row-major
  std::int64_t stride = 0;
  const float* start = nullptr;  // (rows, columns) with the same stride, may be out; null: 0
  const float* bias = nullptr;   // (columns), added to start; null: 0
  float scale = 1;
};

// What of a product need not be computed, where attention is causal: a sum does not change by the zeros that are left
// out, but for the sign of a sum that is zero. Of products of more than kDepthBlock terms or kPackedColumns columns all
// is computed.
struct Triangle {
  enum class Kind : std::uint8_t {
    none,
    wanted_below,  // nobody reads out(i, j) with j > i + diagonal: it may be left as it was
    left_below,    // left(i, k) = 0 for k > i + diagonal
    left_above,    // left(i, k) = 0 for k < i - diagonal
  };
  Kind kind = Kind::none;
  std::int64_t diagonal = 0;  // >= 0
};

inline Destination corner(Destination whole, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * whole.stride + column;
  whole.out += at;
  if (whole.start != nullptr) whole.start += at;
  if (whole.bias != nullptr) whole.bias += column;
  return whole;
}

// The longest chain of multiply-adds; a depth beyond it is cut evenly. Part of what decides the bits (kSummationRules
// in kernels/arithmetic.h).
inline constexpr std::int64_t kDepthBlock = 768;
// As many columns of the right factor (rows of the left one in a product that is computed transposed) are packed at a
// time: with the longest depth, half of a large second-level cache; of a short depth more. The bits do not depend on
// it.
inline constexpr std::int64_t kPackedColumns = 256;
// As many rows of a left factor that cannot be read in place are packed: their pieces of a row of memory are whole
// cache lines.
inline constexpr std::int64_t kPackedRows = 4 * kTileRows;
// Floats of scratch that multiply needs, whatever the sizes: packed panels, a packed block of the left factor, two
// forms of a tile of sums.
inline constexpr std::int64_t kTileStride = (kTileRows + kVectorLanes - 1) / kVectorLanes * kVectorLanes;
inline constexpr std::int64_t kProductScratch =
    kDepthBlock * (kPackedColumns + kPackedRows) + 2 * kTileStride * kTileColumns;

// to.out = start + bias + scale left(rows, depth) right(depth, columns); depth 0 leaves start + bias. `scratch` is
// 64-byte aligned. Looks at the pool's progress hook before every block of
// packed columns.
void multiply(ThreadPool& pool, int worker, float* scratch, const Destination& to, Factor left, Factor right,
              std::int64_t rows, std::int64_t columns, std::int64_t depth, const Triangle& triangle = {});

}  // namespace train_gpt::cpu
