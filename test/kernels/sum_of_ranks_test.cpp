// The order in which ranks are added, against sums written out.
#include "kernels/sum_of_ranks.h"

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "kernels/local_communicator.h"

namespace train_gpt {
namespace {

// Values whose sum depends on the order.
float value(int rank, std::int64_t i) {
  return (rank % 3 == 0 ? 1.0F : -3e-2F) * static_cast<float>((rank + 1) * (i % 17 + 1)) / 7.0F;
}

float tree(int first, int ranks, std::int64_t i) {
  return ranks == 1 ? value(first, i) : tree(first, ranks / 2, i) + tree(first + ranks / 2, ranks / 2, i);
}

float in_rank_order(int ranks, std::int64_t i) {
  float sum = value(0, i);
  for (int r = 1; r < ranks; ++r) sum += value(r, i);
  return sum;
}

float expected(int ranks, std::int64_t i) {
  return (ranks & (ranks - 1)) == 0 ? tree(0, ranks, i) : in_rank_order(ranks, i);
}

TEST(SumOfRanks, IsATreeOfAPowerOfTwoAndElseInRankOrder) {
  constexpr std::int64_t kCount = 5000;  // several blocks
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int owner = 0; owner < ranks; ++owner) {
      std::vector<std::vector<float>> values;
      std::vector<float*> parts;
      for (int r = 0; r < ranks; ++r) {
        std::vector<float>& mine = values.emplace_back();
        for (std::int64_t i = 0; i < kCount; ++i) mine.push_back(value(r, i));
      }
      for (std::vector<float>& mine : values) parts.push_back(mine.data());
      float* out = parts[static_cast<std::size_t>(owner)];
      sum_of_ranks(out, parts, kCount);
      for (std::int64_t i = 0; i < kCount; ++i) ASSERT_EQ(out[i], expected(ranks, i)) << ranks << " ranks, " << i;
    }
  }
  int apart = 0;
  for (std::int64_t i = 0; i < kCount; ++i) apart += tree(0, 8, i) != in_rank_order(8, i) ? 1 : 0;
  EXPECT_GT(apart, 0) << "the values cannot tell the orders apart";
}

TEST(SumOfRanks, IsWhatEveryRankOfAnAllReduceGets) {
  constexpr std::int64_t kCount = 700;
  for (const int ranks : {2, 3, 4, 8}) {
    run_local_ranks(ranks, [&](Communicator& world) {
      std::vector<float> mine;
      for (std::int64_t i = 0; i < kCount; ++i) mine.push_back(value(world.rank(), i));
      world.await(world.all_reduce(mine.data(), kCount));
      for (std::int64_t i = 0; i < kCount; ++i) ASSERT_EQ(mine[static_cast<std::size_t>(i)], expected(ranks, i));
    });
  }
}

}  // namespace
}  // namespace train_gpt
