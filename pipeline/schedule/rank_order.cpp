#include "pipeline/schedule/rank_order.h"

namespace train_gpt {

int rank_in_order(int rank, int ranks, int data_parallel, RankOrder order) {
  if (order == RankOrder::pipeline || ranks % data_parallel != 0) return rank;  // make_layout() will refuse
  const int replica = rank % data_parallel, of_pipeline = rank / data_parallel;
  return replica * (ranks / data_parallel) + of_pipeline;
}

}  // namespace train_gpt
