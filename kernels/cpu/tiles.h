// The cut of a matrix product into tiles, which the threads share out. Since the bits of a product do not depend on its
// cut (product.h), the cut suits the number of threads: few large tiles, because each packs its part of a factor, and
// as many as it takes for all threads to end at about the same time.
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

// The smallest multiple of `unit` that cuts n into at most `pieces` pieces.
inline std::int64_t piece_size(std::int64_t n, std::int64_t pieces, std::int64_t unit) {
  const std::int64_t even = (n + pieces - 1) / pieces;
  return (even + unit - 1) / unit * unit;
}

// What a tile costs besides its multiply-adds, in rows and columns of them: reading and packing what it needs of the
// factors.
struct TileCosts {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// The cut, into four tiles per thread at most, whose threads end first: each computes its share of the tiles, then
// waits for a third of one, since another program may slow down one of the cores. The upper bounds keep the work
// between two looks at the progress hook below a few milliseconds.
inline TileShape cheapest_tiles(std::int64_t rows, std::int64_t columns, int threads, TileCosts costs) {
  constexpr std::int64_t kMostRows = 1024, kMostColumns = 1536;
  const std::int64_t most = threads == 1 ? 1 : 4 * std::int64_t{threads};
  const std::int64_t down_at_least = (rows + kMostRows - 1) / kMostRows;
  const std::int64_t across_at_least = (columns + kMostColumns - 1) / kMostColumns;
  TileShape best;
  std::int64_t best_time = 0;
  for (std::int64_t down = down_at_least; down <= std::max(down_at_least, most); ++down) {
    for (std::int64_t across = across_at_least; across <= std::max(across_at_least, most / down); ++across) {
      const TileShape tile{piece_size(rows, down, kTileRows), piece_size(columns, across, kTileColumns)};
      const std::int64_t tiles = ((rows + tile.rows - 1) / tile.rows) * ((columns + tile.columns - 1) / tile.columns);
      const std::int64_t thirds = 3 * ((tiles + threads - 1) / threads) + (threads == 1 ? 0 : 1);
      const std::int64_t time =
          thirds * (std::min(tile.rows, rows) + costs.rows) * (std::min(tile.columns, columns) + costs.columns);
      if (best.rows == 0 || time < best_time) {
        best = tile;
        best_time = time;
      }
    }
  }
  return best;
}

// The columns of the weights are packed, as many numbers as take the time of 40 rows.
inline TileShape tile_shape(std::int64_t rows, std::int64_t columns, int threads) {
  return cheapest_tiles(rows, columns, threads, {.rows = 40, .columns = 8});
}
// Weight gradients pack both factors.
inline TileShape weight_tile_shape(std::int64_t rows, std::int64_t columns, int threads) {
  return cheapest_tiles(rows, columns, threads, {.rows = 40, .columns = 40});
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
