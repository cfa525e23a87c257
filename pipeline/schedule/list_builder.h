// The means by which generators write the lists of a schedule.
#pragma once

#include <vector>

#include "pipeline/schedule/schedule.h"

namespace train_gpt {

// Appends to the list of one rank: schedule.rank(r).forward(stage, micro_batch).backward(stage, micro_batch).
class ListBuilder {
 public:
  explicit ListBuilder(std::vector<Action>& list) : list_(list) {}

  ListBuilder& forward(int stage, int micro_batch) { return add(Op::forward, stage, micro_batch); }
  ListBuilder& backward(int stage, int micro_batch) { return add(Op::backward, stage, micro_batch); }
  ListBuilder& backward_input(int stage, int micro_batch) { return add(Op::backward_input, stage, micro_batch); }
  ListBuilder& backward_weight(int stage, int micro_batch) { return add(Op::backward_weight, stage, micro_batch); }
  ListBuilder& add(Op op, int stage, int micro_batch);
  // Makes the last action appended and the next one run as one.
  ListBuilder& fuse_with_next();

 private:
  std::vector<Action>& list_;
};

inline ListBuilder Schedule::rank(int r) {
  std::vector<Action>& list = lists[static_cast<std::size_t>(r)];
  if (list.empty()) list.reserve(3 * static_cast<std::size_t>(chunks) * static_cast<std::size_t>(micro_batches));
  return ListBuilder(list);
}

}  // namespace train_gpt
