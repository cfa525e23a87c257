// Matrix products in tiles. A product is cut into tiles by its shape alone, each tile is one or more single-threaded
// BLAS calls by one thread, so the bits of the result do not depend on the number of threads (OpenBLAS's own threading
// changes them). What surrounds a product (bias, GELU, residual) runs on a tile while it is in cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/thread_pool.h"

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

// out(rows, columns) = scale left(rows, depth) right(depth, columns) [+ out if accumulate]. One single-threaded BLAS
// call.
void gemm(float* out, std::int64_t out_stride, Factor left, Factor right, std::int64_t rows, std::int64_t columns,
          std::int64_t depth, float scale, bool accumulate);

// Makes BLAS calls of the calling thread single-threaded; cheap after the first call on a thread.
void use_one_blas_thread();

struct Tile {
  std::int64_t row = 0, column = 0;    // of the product's upper left corner
  std::int64_t rows = 0, columns = 0;  // size
};

struct TileShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// A product should have this many tiles for the threads to share, as far as tiles of a good size allow.
inline constexpr std::int64_t kWantedTiles = 4;
// Multiply-adds of one BLAS call, about 2 ms: bounds the time between two looks at the progress hook.
inline constexpr std::int64_t kCallVolume = std::int64_t{256} * 768 * 768;

// The smallest multiple of `unit` that cuts n into at most `pieces` pieces, within [low, high].
inline std::int64_t piece_size(std::int64_t n, std::int64_t pieces, std::int64_t unit, std::int64_t low,
                               std::int64_t high) {
  const std::int64_t even = (n + pieces - 1) / pieces;
  return std::clamp((even + unit - 1) / unit * unit, low, high);
}

// Sizes measured with OpenBLAS on AVX-512: each call packs its rows of `left` anew for every column of tiles, so few
// wide tiles beat many narrow ones (at 256 rows 768, 384 and 192 columns reach 124, 116 and 113 GFLOP/s a core).
// Products whose rows are positions of the batch:
inline constexpr std::int64_t kPositionRows = 256, kMinPositionColumns = 384, kMaxPositionColumns = 1536;
inline TileShape position_tiles(std::int64_t rows, std::int64_t columns) {
  const std::int64_t down = (rows + kPositionRows - 1) / kPositionRows;
  const std::int64_t across = (kWantedTiles + down - 1) / down;
  return {piece_size(rows, down, 16, 16, kPositionRows),
          piece_size(columns, across, 32, kMinPositionColumns, kMaxPositionColumns)};
}

// Weight gradients, whose inner dimension is the batch:
inline TileShape weight_tiles(std::int64_t rows, std::int64_t columns) {
  const std::int64_t across = (columns + 767) / 768;
  const std::int64_t down = (kWantedTiles + across - 1) / across;
  return {piece_size(rows, down, 32, 384, 1024), piece_size(columns, across, 32, 32, 768)};
}

template <typename TileTask>
void for_each_tile(ThreadPool& pool, std::int64_t rows, std::int64_t columns, TileShape shape, const TileTask& task) {
  const std::int64_t down = (rows + shape.rows - 1) / shape.rows;
  const std::int64_t across = (columns + shape.columns - 1) / shape.columns;
  pool.run(down * across, [&](std::int64_t index, int worker) {
    const std::int64_t row = index % down * shape.rows;
    const std::int64_t column = index / down * shape.columns;
    task(Tile{row, column, std::min(shape.rows, rows - row), std::min(shape.columns, columns - column)}, worker);
  });
}

// The tile of left * right, written to out (its upper left corner at `out`).
inline void multiply_tile(ThreadPool& pool, int worker, const Tile& tile, float* out, std::int64_t out_stride,
                          Factor left, Factor right, std::int64_t depth, bool accumulate) {
  const std::int64_t step = std::max<std::int64_t>(256, kCallVolume / (tile.rows * tile.columns) / 64 * 64);
  for (std::int64_t k = 0; k < depth; k += step) {
    if (k > 0) pool.progress(worker);
    gemm(out, out_stride, {left.at(tile.row, k), left.stride, left.transposed},
         {right.at(k, tile.column), right.stride, right.transposed}, tile.rows, tile.columns, std::min(step, depth - k),
         1.0F, accumulate || k > 0);
  }
}

}  // namespace train_gpt::cpu
