#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_device.h"
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

// accumulate false: dweight is set, not added to
void weight_gradient(ThreadPool& pool, float* dweight, float* dbias, const float* in, const float* dout,
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

}  // namespace

void CpuDevice::matmul_forward(void* out, const void* in, const void* weight, const void* bias, std::int64_t N,
                               std::int64_t C, std::int64_t OC) {
  for_each_tile(pool_, N, OC, position_tiles(N, OC), [&](const Tile& tile, int worker) {
    float* corner = floats(out) + tile.row * OC + tile.column;
    if (bias != nullptr) fill_with_bias(tile, corner, OC, floats(bias));
    multiply_tile(pool_, worker, tile, corner, OC, {floats(in), C, false}, {floats(weight), C, true}, C,
                  bias != nullptr);
  });
}

void CpuDevice::matmul_gelu_forward(void* out, void* pre, const void* in, const void* weight, const void* bias,
                                    std::int64_t N, std::int64_t C, std::int64_t OC) {
  float* product = floats(pre == nullptr ? out : pre);
  for_each_tile(pool_, N, OC, position_tiles(N, OC), [&](const Tile& tile, int worker) {
    const std::int64_t corner = tile.row * OC + tile.column;
    fill_with_bias(tile, product + corner, OC, floats(bias));
    multiply_tile(pool_, worker, tile, product + corner, OC, {floats(in), C, false}, {floats(weight), C, true}, C,
                  true);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const float* x = product + corner + i * OC;
      float* y = floats(out) + corner + i * OC;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < tile.columns; ++j) y[j] = gelu(x[j]);
    }
  });
}

void CpuDevice::matmul_residual_forward(void* out, const void* in, const void* weight, const void* bias,
                                        const void* residual, std::int64_t N, std::int64_t C, std::int64_t OC) {
  for_each_tile(pool_, N, OC, position_tiles(N, OC), [&](const Tile& tile, int worker) {
    const std::int64_t corner = tile.row * OC + tile.column;
    fill_with_residual(tile, floats(out) + corner, OC, floats(residual) + corner, floats(bias));
    multiply_tile(pool_, worker, tile, floats(out) + corner, OC, {floats(in), C, false}, {floats(weight), C, true}, C,
                  true);
  });
}

void CpuDevice::matmul_backward_input(void* din, const void* dout, const void* weight, std::int64_t N, std::int64_t C,
                                      std::int64_t OC) {
  for_each_tile(pool_, N, C, position_tiles(N, C), [&](const Tile& tile, int worker) {
    multiply_tile(pool_, worker, tile, floats(din) + tile.row * C + tile.column, C, {floats(dout), OC, false},
                  {floats(weight), C, false}, OC, false);
  });
}

std::int64_t CpuDevice::matmul_scratch_floats(std::int64_t N, std::int64_t C) {
  const TileShape tile = position_tiles(N, C);
  return (std::min(tile.rows, N) * std::min(tile.columns, C) + 63) / 64 * 64;
}

// The product goes to scratch: dpre may be pre, which the derivative still needs.
void CpuDevice::matmul_gelu_backward_input(void* dpre, const void* dout, const void* weight, const void* pre,
                                           std::int64_t N, std::int64_t C, std::int64_t OC) {
  const Scratch products = scratch(matmul_scratch_floats(N, C));
  for_each_tile(pool_, N, C, position_tiles(N, C), [&](const Tile& tile, int worker) {
    float* product = products.of(worker);
    multiply_tile(pool_, worker, tile, product, tile.columns, {floats(dout), OC, false}, {floats(weight), C, false}, OC,
                  false);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t row = (tile.row + i) * C + tile.column;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < tile.columns; ++j) {
        floats(dpre)[row + j] = product[i * tile.columns + j] * gelu_derivative(floats(pre)[row + j]);
      }
    }
  });
}

void CpuDevice::matmul_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                                       std::int64_t C, std::int64_t OC) {
  weight_gradient(pool_, dweight, dbias, floats(in), floats(dout), /*accumulate=*/true, N, C, OC);
}

void CpuDevice::matmul_first_backward_weight(float* dweight, float* dbias, const void* in, const void* dout,
                                             std::int64_t N, std::int64_t C, std::int64_t OC) {
  weight_gradient(pool_, dweight, dbias, floats(in), floats(dout), /*accumulate=*/false, N, C, OC);
}

}  // namespace train_gpt::cpu
