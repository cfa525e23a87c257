#include "kernels/cpu/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace train_gpt::cpu {
namespace {

// How much longer the busiest of the threads computes than it would if they shared the elements evenly, each tile going
// to the thread that is free first.
double imbalance(std::int64_t rows, std::int64_t columns, int threads, TileShape shape) {
  std::vector<std::int64_t> elements(static_cast<std::size_t>(threads), 0);
  for (std::int64_t column = 0; column < columns; column += shape.columns) {
    for (std::int64_t row = 0; row < rows; row += shape.rows) {
      *std::ranges::min_element(elements) +=
          std::min(shape.rows, rows - row) * std::min(shape.columns, columns - column);
    }
  }
  return static_cast<double>(*std::ranges::max_element(elements) * threads) / static_cast<double>(rows * columns);
}

TEST(Tiles, ThreadsGetEqualSharesOfATrainingStep) {
  for (const int threads : {2, 3, 4}) {
    for (const std::int64_t hidden : {128, 384, 768, 1600}) {
      for (const std::int64_t outputs : {hidden, 3 * hidden, 4 * hidden}) {
        SCOPED_TRACE(std::to_string(threads) + " threads, " + std::to_string(outputs) + " x " + std::to_string(hidden));
        for (const std::int64_t rows : {256, 512, 1024})
          EXPECT_LT(imbalance(rows, outputs, threads, tile_shape(rows, outputs, threads)), 1.26) << rows << " rows";
        EXPECT_LT(imbalance(outputs, hidden, threads, weight_tile_shape(outputs, hidden, threads)), 1.26);
      }
    }
  }
}

TEST(Tiles, OneThreadPacksNothingTwice) {
  const TileShape forward = tile_shape(1024, 768, 1), gradient = weight_tile_shape(768, 768, 1);
  EXPECT_GE(forward.rows, 1024);
  EXPECT_EQ(forward.columns, 768);
  EXPECT_GE(gradient.rows, 768);
  EXPECT_EQ(gradient.columns, 768);
}

TEST(Tiles, NoTileKeepsAThreadFromItsMessagesForLong) {
  for (const int threads : {1, 2, 4}) {
    const TileShape shape = tile_shape(100000, 100000, threads);
    EXPECT_LE(shape.rows, 1024 + kTileRows);
    EXPECT_LE(shape.columns, 1536 + kTileColumns);
  }
}

}  // namespace
}  // namespace train_gpt::cpu
