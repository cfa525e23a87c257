#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/vector_math.h"

namespace train_gpt::cpu {
namespace {

// out(N,OC) = start + bias + in(N,C) weight(OC,C)^T; then finish(tile, worker)
template <typename Finish>
void linear(ThreadPool& pool, Scratch scratch, Destination to, const float* in, const float* weight, std::int64_t N,
            std::int64_t C, std::int64_t OC, const Finish& finish) {
  for_each_tile(pool, N, OC, tile_shape(N, OC, pool.threads()), [&](const Tile& tile, int worker) {
    multiply_tile(pool, worker, scratch.of(worker), tile, corner(to, tile.row, tile.column), {in, C, false},
                  {weight, C, true}, C);
    finish(tile, worker);
  });
}

// accumulate false: dweight is set, not added to
void weight_gradient(ThreadPool& pool, Scratch scratch, float* dweight, float* dbias, const float* in,
                     const float* dout, bool accumulate, std::int64_t N, std::int64_t C, std::int64_t OC) {
  const Destination to{.out = dweight, .stride = C, .start = accumulate ? dweight : nullptr};
  for_each_tile(pool, OC, C, weight_tile_shape(OC, C, pool.threads()), [&](const Tile& tile, int worker) {
    multiply_tile(pool, worker, scratch.of(worker), tile, corner(to, tile.row, tile.column), {dout, OC, true},
                  {in, C, false}, N);
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
  const Destination to{.out = floats(out), .stride = OC, .bias = floats(bias)};
  linear(pool_, scratch(kProductScratch), to, floats(in), floats(weight), N, C, OC, [](const Tile&, int) {});
}

void CpuDevice::matmul_gelu_forward(void* out, void* pre, const void* in, const void* weight, const void* bias,
                                    std::int64_t N, std::int64_t C, std::int64_t OC) {
  float* product = floats(pre == nullptr ? out : pre);
  const Destination to{.out = product, .stride = OC, .bias = floats(bias)};
  linear(pool_, scratch(kProductScratch), to, floats(in), floats(weight), N, C, OC, [&](const Tile& tile, int) {
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t row = (tile.row + i) * OC + tile.column;
      const float* x = product + row;
      float* y = floats(out) + row;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < tile.columns; ++j) y[j] = gelu(x[j]);
    }
  });
}

void CpuDevice::matmul_residual_forward(void* out, const void* in, const void* weight, const void* bias,
                                        const void* residual, std::int64_t N, std::int64_t C, std::int64_t OC) {
  const Destination to{.out = floats(out), .stride = OC, .start = floats(residual), .bias = floats(bias)};
  linear(pool_, scratch(kProductScratch), to, floats(in), floats(weight), N, C, OC, [](const Tile&, int) {});
}

void CpuDevice::matmul_backward_input(void* din, const void* dout, const void* weight, std::int64_t N, std::int64_t C,
                                      std::int64_t OC) {
  const Destination to{.out = floats(din), .stride = C};
  const Scratch buffers = scratch(kProductScratch);
  for_each_tile(pool_, N, C, tile_shape(N, C, pool_.threads()), [&](const Tile& tile, int worker) {
    multiply_tile(pool_, worker, buffers.of(worker), tile, corner(to, tile.row, tile.column), {floats(dout), OC, false},
                  {floats(weight), C, false}, OC);
  });
}

// The product goes to scratch: dpre may be pre, which the derivative still needs.
void CpuDevice::matmul_gelu_backward_input(void* dpre, const void* dout, const void* weight, const void* pre,
                                           std::int64_t N, std::int64_t C, std::int64_t OC) {
  const Scratch buffers = scratch(kProductScratch + tile_scratch_floats(N, C));
  for_each_tile(pool_, N, C, tile_shape(N, C, pool_.threads()), [&](const Tile& tile, int worker) {
    float* product = buffers.of(worker) + kProductScratch;
    multiply_tile(pool_, worker, buffers.of(worker), tile, {.out = product, .stride = tile.columns},
                  {floats(dout), OC, false}, {floats(weight), C, false}, OC);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t row = (tile.row + i) * C + tile.column;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < tile.columns; ++j) {
        floats(dpre)[row + j] = product[i * tile.columns + j] * gelu_derivative(floats(pre)[row + j]);
      }
    }
  });
}

std::int64_t CpuDevice::tile_scratch_floats(std::int64_t N, std::int64_t C) const {
  const TileShape tile = tile_shape(N, C, pool_.threads());
  return (std::min(tile.rows, N) * std::min(tile.columns, C) + 63) / 64 * 64;
}

void CpuDevice::matmul_backward_weight(float* dweight, float* dbias, const void* in, const void* dout, std::int64_t N,
                                       std::int64_t C, std::int64_t OC) {
  weight_gradient(pool_, scratch(kProductScratch), dweight, dbias, floats(in), floats(dout), /*accumulate=*/true, N, C,
                  OC);
}

void CpuDevice::matmul_first_backward_weight(float* dweight, float* dbias, const void* in, const void* dout,
                                             std::int64_t N, std::int64_t C, std::int64_t OC) {
  weight_gradient(pool_, scratch(kProductScratch), dweight, dbias, floats(in), floats(dout), /*accumulate=*/false, N, C,
                  OC);
}

}  // namespace train_gpt::cpu
