// The window of the training data that a row of a step reads: a pure function of seed, step and the row's index in the
// global batch, so that a batch holds the same samples however it is cut into replicas and micro-batches, and resuming
// needs nothing but the step number.
#pragma once

#include <cstdint>

namespace train_gpt {

// Row r of step s is sample s*rows + r of an endless sequence: every epoch (one pass over all windows) is a
// pseudo-random permutation of them if shuffled, else their own order. All windows are read once before any is read
// again.
struct SampleOrder {
  std::int64_t windows = 1;  // in the data set
  std::int64_t rows = 1;     // of one step: d * m * b
  bool shuffle = true;
  std::uint64_t seed = 1;

  // step >= 0, 0 <= row < rows, (step + 1) * rows < 2^63.
  std::int64_t window(std::int64_t step, std::int64_t row) const;
};

// A bijection of 0 .. count-1 that depends on (seed, epoch): the swap-or-not shuffle (Hoang, Morris, Rogaway,
// CRYPTO 2012). No table, any count, about a microsecond.
std::int64_t permuted(std::int64_t index, std::int64_t count, std::uint64_t seed, std::int64_t epoch);

}  // namespace train_gpt
