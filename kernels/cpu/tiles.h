// The cut of a matrix product into tiles, which the threads share out. Since the bits of a product do not depend on its
// cut (product.h), the cut suits the number of threads: each tile packs its part of a factor, so few large tiles beat
// many small ones, and four per thread even out what one of them loses to something else on its core.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/product.h"
#include "kernels/cpu/thread_pool.h"

namespace train_gpt::cpu {

struct Tile {
  std::int64_t row = 0, column = 0;    // of the product's upper left corner
  std::int64_t rows = 0, columns = 0;  // size
};

struct TileShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// The smallest multiple of `unit` that cuts n into at most `pieces` pieces, within [low, high].
inline std::int64_t piece_size(std::int64_t n, std::int64_t pieces, std::int64_t unit, std::int64_t low,
                               std::int64_t high) {
  const std::int64_t even = (n + pieces - 1) / pieces;
  return std::clamp((even + unit - 1) / unit * unit, low, high);
}

inline std::int64_t wanted_tiles(int threads) { return threads == 1 ? 1 : 4 * std::int64_t{threads}; }

// The upper bounds keep the work between two looks at the progress hook below a few milliseconds. The weights are
// packed once for all rows of a tile.
inline TileShape tile_shape(std::int64_t rows, std::int64_t columns, int threads) {
  constexpr std::int64_t kMostRows = 1024;
  const std::int64_t down = (rows + kMostRows - 1) / kMostRows;
  const std::int64_t across = (wanted_tiles(threads) + down - 1) / down;
  return {piece_size(rows, down, 16, 16, kMostRows), piece_size(columns, across, 96, 96, 1536)};
}
// Weight gradients pack both factors, and every tile packs its own part: tiles are as square as they can be.
inline TileShape weight_tile_shape(std::int64_t rows, std::int64_t columns, int threads) {
  const std::int64_t wanted = wanted_tiles(threads);
  TileShape best;
  for (std::int64_t down = 1; down <= wanted; ++down) {
    const TileShape shape{piece_size(rows, down, 48, 48, 1152),
                          piece_size(columns, (wanted + down - 1) / down, 96, 96, 1536)};
    if (best.rows == 0 || std::min(shape.rows, shape.columns) > std::min(best.rows, best.columns)) best = shape;
  }
  return best;
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

// The tile of left * right; `to` is at the tile's own upper left corner.
inline void multiply_tile(ThreadPool& pool, int worker, float* scratch, const Tile& tile, const Destination& to,
                          Factor left, Factor right, std::int64_t depth) {
  multiply(pool, worker, scratch, to, {left.at(tile.row, 0), left.stride, left.transposed},
           {right.at(0, tile.column), right.stride, right.transposed}, tile.rows, tile.columns, depth);
}

}  // namespace train_gpt::cpu
