#include "cublas_product.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace emulator::cublas {
namespace {

// The operands were checked when the call was made; per-access checks of the sanitizers would only cost time here.
#define EMULATOR_UNCHECKED __attribute__((no_sanitize("address", "undefined")))

constexpr std::int64_t kPanelRows = 16;    // of a: one vector register
constexpr std::int64_t kPanelColumns = 8;  // of b: independent accumulators, enough to hide the latency of an addition
using Vector = float __attribute__((vector_size(kPanelRows * sizeof(float)), aligned(4)));

// Panels of `width` rows, each stored k-major: the product reads both operands from front to back.
template <std::int64_t width>
EMULATOR_UNCHECKED std::vector<float> packed(const Operand& x, InputRounding rounding) {
  const std::int64_t panels = (x.rows + width - 1) / width, k = x.columns;
  std::vector<float> out(static_cast<std::size_t>(panels * width * k), 0.0F);
  const bool rows_adjacent = x.row_stride == 1;
  const std::int64_t run = rows_adjacent ? x.rows : k, runs = rows_adjacent ? k : x.rows;
  const std::int64_t step = rows_adjacent ? 1 : x.column_stride,
                     stride = rows_adjacent ? x.column_stride : x.row_stride;
  const auto bytes = static_cast<std::int64_t>(element_bytes(x.type));
  std::vector<float> line(static_cast<std::size_t>(run));
  for (std::int64_t r = 0; r < runs; ++r) {
    const char* source = static_cast<const char*>(x.data) + r * stride * bytes;
    if (step == 1) {
      to_floats(line.data(), source, x.type, run);
    } else {
      for (std::int64_t i = 0; i < run; ++i)
        to_floats(&line[static_cast<std::size_t>(i)], source + i * step * bytes, x.type, 1);
    }
    if (rounding != InputRounding::none) {
      for (float& value : line) value = rounded(value, rounding);
    }
    if (rows_adjacent) {
      for (std::int64_t i = 0; i < run; i += width) {
        std::memcpy(&out[static_cast<std::size_t>((i / width * k + r) * width)], &line[static_cast<std::size_t>(i)],
                    static_cast<std::size_t>(std::min(width, run - i)) * sizeof(float));
      }
    } else {
      float* lane = &out[static_cast<std::size_t>(r / width * k * width + r % width)];
      for (std::int64_t i = 0; i < run; ++i) lane[i * width] = line[static_cast<std::size_t>(i)];
    }
  }
  return out;
}

// accumulators[j] = sum over k of a(:, k) b(k, j), for one panel of each.
EMULATOR_UNCHECKED void multiply_panels(Vector (&accumulators)[kPanelColumns], const float* a, const float* b,
                                        std::int64_t k) {
  Vector sum[kPanelColumns] = {};
  for (std::int64_t l = 0; l < k; ++l) {
    Vector column;
    std::memcpy(&column, a + l * kPanelRows, sizeof(column));
    const float* row = b + l * kPanelColumns;
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < kPanelColumns; ++j) sum[j] = sum[j] + column * row[j];
  }
  for (std::int64_t j = 0; j < kPanelColumns; ++j) accumulators[j] = sum[j];
}

}  // namespace

EMULATOR_UNCHECKED void multiply(float* out, const Operand& a, const Operand& b, InputRounding rounding) {
  const std::int64_t m = a.rows, n = b.columns, k = a.columns;
  const Operand b_transposed{b.data, b.type, b.columns, b.rows, b.column_stride, b.row_stride};
  const std::vector<float> a_panels = packed<kPanelRows>(a, rounding);
  const std::vector<float> b_panels = packed<kPanelColumns>(b_transposed, rounding);
  for (std::int64_t j = 0; j < n; j += kPanelColumns) {
    for (std::int64_t i = 0; i < m; i += kPanelRows) {
      Vector tile[kPanelColumns];
      multiply_panels(tile, a_panels.data() + i * k, b_panels.data() + j * k, k);
      const auto bytes = static_cast<std::size_t>(std::min(kPanelRows, m - i)) * sizeof(float);
      for (std::int64_t c = 0; c < std::min(kPanelColumns, n - j); ++c)
        std::memcpy(out + (j + c) * m + i, &tile[c], bytes);
    }
  }
}

}  // namespace emulator::cublas
