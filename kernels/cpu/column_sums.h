// Sums down the columns of a row-major matrix, for biases and LayerNorm parameters. Work is shared out by strips of
// columns; within a strip rows are summed in blocks of 64, block after block, whatever the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace train_gpt::cpu {

inline constexpr std::int64_t kStripColumns = 64;
inline constexpr std::int64_t kStripRows = 64;

// For each column c in [begin, end), end - begin <= kStripColumns: sums[k][c] += sum over rows n of term(k, n, c).
// term(n, c, values) fills values[0..Outputs).
template <int Outputs, typename Term>
void add_column_sums(float* const (&sums)[Outputs], std::int64_t rows, std::int64_t begin, std::int64_t end,
                     const Term& term) {
  float total[Outputs][kStripColumns] = {};
  const std::int64_t width = end - begin;
  for (std::int64_t first = 0; first < rows; first += kStripRows) {
    float block[Outputs][kStripColumns] = {};
    for (std::int64_t n = first; n < std::min(rows, first + kStripRows); ++n) {
      for (std::int64_t i = 0; i < width; ++i) {
        float values[Outputs];
        term(n, begin + i, values);
        for (int k = 0; k < Outputs; ++k) block[k][i] += values[k];
      }
    }
    for (int k = 0; k < Outputs; ++k) {
      for (std::int64_t i = 0; i < width; ++i) total[k][i] += block[k][i];
    }
  }
  for (int k = 0; k < Outputs; ++k) {
    for (std::int64_t i = 0; i < width; ++i) sums[k][begin + i] += total[k][i];
  }
}

}  // namespace train_gpt::cpu
