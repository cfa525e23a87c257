// Which rank of the job a process is.
#include "pipeline/schedule/rank_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace train_gpt {
namespace {

std::vector<int> ranks(int count, int data_parallel, RankOrder order) {
  std::vector<int> all;
  for (int rank = 0; rank < count; ++rank) all.push_back(rank_in_order(rank, count, data_parallel, order));
  return all;
}

// p = 3, d = 2: rank r of replica k is rank 3 k + r of the job.
TEST(RankOrder, PutsNeighboursIntoOnePipelineOrOneStage) {
  EXPECT_EQ(ranks(6, 2, RankOrder::pipeline), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ranks(6, 2, RankOrder::replicas), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(ranks(5, 2, RankOrder::replicas), (std::vector<int>{0, 1, 2, 3, 4}));  // no layout at all
}

}  // namespace
}  // namespace train_gpt
