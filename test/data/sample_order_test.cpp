#include "data/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>
#include <vector>

namespace train_gpt {
namespace {

std::vector<std::int64_t> epoch_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < count; ++i) order.push_back(permuted(i, count, seed, epoch));
  return order;
}

TEST(Permuted, IsABijectionForEverySize) {
  std::vector<std::int64_t> counts(130);
  std::iota(counts.begin(), counts.end(), 1);
  counts.insert(counts.end(), {255, 256, 257, 1000, 4095, 4097, 65536});
  for (const std::int64_t count : counts) {
    std::vector<std::int64_t> order = epoch_order(count, 42, 3);
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i) << "count " << count;
  }
}

TEST(Permuted, StaysInRangeBeyondThirtyTwoBits) {
  const std::int64_t count = (std::int64_t{1} << 62) + 12345;
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t window = permuted(count - 1 - i, count, 7, 0);
    ASSERT_GE(window, 0);
    ASSERT_LT(window, count);
    seen.insert(window);
  }
  EXPECT_EQ(seen.size(), 1000U);
}

TEST(Permuted, DependsOnSeedAndEpoch) {
  const std::vector<std::int64_t> order = epoch_order(1000, 1, 0);
  EXPECT_EQ(order, epoch_order(1000, 1, 0));
  EXPECT_NE(order, epoch_order(1000, 2, 0));
  EXPECT_NE(order, epoch_order(1000, 1, 1));
  EXPECT_NE(epoch_order(1000, 2, 0), epoch_order(1000, 1, 1));
}

// A random permutation has about one fixed point, about n/3 as mean distance travelled, and neighbours that are
// neighbours no longer.
TEST(Permuted, ScattersNeighbours) {
  constexpr std::int64_t kCount = 20000;
  const std::vector<std::int64_t> order = epoch_order(kCount, 1, 0);
  std::int64_t fixed = 0;
  std::int64_t still_neighbours = 0;
  double distance = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const std::size_t k = static_cast<std::size_t>(i);
    fixed += order[k] == i;
    distance += static_cast<double>(std::llabs(order[k] - i)) / kCount;
    if (i > 0) still_neighbours += std::llabs(order[k] - order[k - 1]) == 1;
  }
  EXPECT_LE(fixed, 8);
  EXPECT_LE(still_neighbours, 12);
  EXPECT_NEAR(distance / kCount, 1.0 / 3, 0.01);
}

TEST(Permuted, PutsEveryWindowEverywhereEquallyOften) {
  constexpr std::int64_t kEpochs = 6000;
  for (const std::int64_t count : {2, 3, 5, 8}) {
    std::vector<double> hits(static_cast<std::size_t>(count * count));
    for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (std::int64_t i = 0; i < count; ++i) {
        hits[static_cast<std::size_t>(i * count + permuted(i, count, 1, epoch))] += 1;
      }
    }
    const double expected = static_cast<double>(kEpochs) / static_cast<double>(count);
    for (const double hit : hits) EXPECT_NEAR(hit, expected, 5 * std::sqrt(expected)) << "count " << count;
  }
}

TEST(SampleOrder, ConsecutiveWindowsWrapModuloTheirNumber) {
  const SampleOrder order{.windows = 10, .rows = 4, .shuffle = false};
  EXPECT_EQ(order.window(0, 0), 0);
  EXPECT_EQ(order.window(0, 3), 3);
  EXPECT_EQ(order.window(1, 2), 6);
  EXPECT_EQ(order.window(2, 1), 9);
  EXPECT_EQ(order.window(2, 2), 0);
  EXPECT_EQ(order.window(1000000000000, 3), 3);
}

TEST(SampleOrder, ReadsEveryWindowOnceAnEpoch) {
  const SampleOrder order{.windows = 40, .rows = 8, .shuffle = true, .seed = 5};
  std::vector<std::int64_t> first_epoch;
  for (std::int64_t step = 0; step < 5; ++step) {
    std::set<std::int64_t> batch;
    for (std::int64_t row = 0; row < 8; ++row) batch.insert(order.window(step, row));
    EXPECT_EQ(batch.size(), 8U) << "rows of one step are different windows";
    first_epoch.insert(first_epoch.end(), batch.begin(), batch.end());
  }
  std::sort(first_epoch.begin(), first_epoch.end());
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(first_epoch[static_cast<std::size_t>(i)], i);

  std::vector<std::int64_t> again;
  for (std::int64_t step = 0; step < 5; ++step) {
    for (std::int64_t row = 0; row < 8; ++row) again.push_back(order.window(5 + step, row));
  }
  EXPECT_NE(again[0] * 100 + again[1], order.window(0, 0) * 100 + order.window(0, 1)) << "another order in epoch 1";
}

// The sequence of samples is the same however it is cut into steps, so only the number of rows matters, not how
// replicas and micro-batches share them.
TEST(SampleOrder, IsOneSequenceForEveryBatchSize) {
  for (const bool shuffle : {false, true}) {
    const SampleOrder by_one{.windows = 37, .rows = 1, .shuffle = shuffle};
    for (const std::int64_t rows : {2, 4, 16, 64}) {
      const SampleOrder by_rows{.windows = 37, .rows = rows, .shuffle = shuffle};
      for (std::int64_t sample = 0; sample < 200; ++sample) {
        ASSERT_EQ(by_rows.window(sample / rows, sample % rows), by_one.window(sample, 0));
      }
    }
  }
}

// Frozen: a changed order would silently change every published run.
TEST(SampleOrder, DoesNotChangeBetweenVersions) {
  const SampleOrder order{.windows = 1000, .rows = 8, .shuffle = true, .seed = 1};
  std::vector<std::int64_t> windows;
  for (std::int64_t row = 0; row < 8; ++row) windows.push_back(order.window(0, row));
  EXPECT_EQ(windows, (std::vector<std::int64_t>{62, 373, 611, 930, 489, 108, 193, 8}));
}

// Step 2 of two rows begins with the last window of epoch 0; the next row is the first of epoch 1, in that epoch's
// order.
TEST(SampleOrder, AnEpochEndsInsideAStep) {
  const SampleOrder order{.windows = 5, .rows = 2, .shuffle = true, .seed = 3};
  EXPECT_EQ(order.window(2, 0), permuted(4, 5, 3, 0));
  EXPECT_EQ(order.window(2, 1), permuted(0, 5, 3, 1));
  ASSERT_NE(permuted(0, 5, 3, 0), permuted(0, 5, 3, 1)) << "another seed would show more";
}

}  // namespace
}  // namespace train_gpt
