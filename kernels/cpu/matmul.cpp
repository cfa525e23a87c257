#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/vector_math.h"

namespace train_gpt::cpu {
namespace {

// tile of out = bias, or zero where there is none
void fill_with_bias(const Tile& tile, float* out, std::int64_t stride, const float* bias) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    float* row = out + i * stride;
    if (bias == nullptr) {
      std::fill(row, row + tile.columns, 0.0F);
    } else {
      std::copy(bias + tile.column, bias + tile.column + tile.columns, row);
    }
  }
}

// tile of out = residual + bias; out and residual may be the same
void fill_with_residual(const Tile& tile, float* out, std::int64_t stride, const float* residual, const float* bias) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    float* row = out + i * stride;
    const float* from = residual + i * stride;
    if (bias == nullptr) {
      if (row != from) std::copy(from, from + tile.columns, row);
    } else {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < tile.columns; ++j) row[j] = from[j] + bias[tile.column + j];
    }
  }
}

}  // namespace

void matmul_forward(ThreadPool& pool, float* out, const float* in, const float* weight, const float* bias,
                    std::int64_t N, std::int64_t C, std::int64_t OC) {
  for_each_tile(pool, N, OC, position_tiles(N, OC), [&](const Tile& tile, int worker) {
    float* corner = out + tile.row * OC + tile.column;
    if (bias != nullptr) fill_with_bias(tile, corner, OC, bias);
    multiply_tile(pool, worker, tile, corner, OC, {in, C, false}, {weight, C, true}, C, bias != nullptr);
  });
}

void matmul_gelu_forward(ThreadPool& pool, float* out, float* pre, const float* in, const float* weight,
                         const float* bias, std::int64_t N, std::int64_t C, std::int64_t OC) {
  float* product = pre == nullptr ? out : pre;
  for_each_tile(pool, N, OC, position_tiles(N, OC), [&](const Tile& tile, int worker) {
    const std::int64_t corner = tile.row * OC + tile.column;
    fill_with_bias(tile, product + corner, OC, bias);
    multiply_tile(pool, worker, tile, product + corner, OC, {in, C, false}, {weight, C, true}, C, true);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const float* x = product + corner + i * OC;
      float* y = out + corner + i * OC;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < tile.columns; ++j) y[j] = gelu(x[j]);
    }
  });
}

void matmul_residual_forward(ThreadPool& pool, float* out, const float* in, const float* weight, const float* bias,
                             const float* residual, std::int64_t N, std::int64_t C, std::int64_t OC) {
  for_each_tile(pool, N, OC, position_tiles(N, OC), [&](const Tile& tile, int worker) {
    const std::int64_t corner = tile.row * OC + tile.column;
    fill_with_residual(tile, out + corner, OC, residual + corner, bias);
    multiply_tile(pool, worker, tile, out + corner, OC, {in, C, false}, {weight, C, true}, C, true);
  });
}

void matmul_backward_input(ThreadPool& pool, float* din, const float* dout, const float* weight, std::int64_t N,
                           std::int64_t C, std::int64_t OC) {
  for_each_tile(pool, N, C, position_tiles(N, C), [&](const Tile& tile, int worker) {
    multiply_tile(pool, worker, tile, din + tile.row * C + tile.column, C, {dout, OC, false}, {weight, C, false}, OC,
                  false);
  });
}

std::int64_t matmul_scratch_floats(std::int64_t N, std::int64_t C) {
  const TileShape tile = position_tiles(N, C);
  return (std::min(tile.rows, N) * std::min(tile.columns, C) + 63) / 64 * 64;
}

// The product goes to scratch: dpre may be pre, which the derivative still needs.
void matmul_gelu_backward_input(ThreadPool& pool, Scratch scratch, float* dpre, const float* dout, const float* weight,
                                const float* pre, std::int64_t N, std::int64_t C, std::int64_t OC) {
  for_each_tile(pool, N, C, position_tiles(N, C), [&](const Tile& tile, int worker) {
    float* product = scratch.of(worker);
    multiply_tile(pool, worker, tile, product, tile.columns, {dout, OC, false}, {weight, C, false}, OC, false);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t row = (tile.row + i) * C + tile.column;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < tile.columns; ++j) {
        dpre[row + j] = product[i * tile.columns + j] * gelu_derivative(pre[row + j]);
      }
    }
  });
}

void matmul_backward_weight(ThreadPool& pool, float* dweight, float* dbias, const float* in, const float* dout,
                            bool accumulate, std::int64_t N, std::int64_t C, std::int64_t OC) {
  for_each_tile(pool, OC, C, weight_tiles(OC, C), [&](const Tile& tile, int worker) {
    multiply_tile(pool, worker, tile, dweight + tile.row * C + tile.column, C, {dout, OC, true}, {in, C, false}, N,
                  accumulate);
  });
  if (dbias == nullptr) return;
  pool.run_blocks(OC, kStripColumns, [&](std::int64_t begin, std::int64_t end) {
    float* const sums[1] = {dbias};
    add_column_sums<1>(sums, N, begin, end,
                       [&](std::int64_t n, std::int64_t c, float* values) { values[0] = dout[n * OC + c]; });
  });
}

}  // namespace train_gpt::cpu
