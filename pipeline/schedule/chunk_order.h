// The order in which an interleaved schedule walks through (chunk, micro-batch): groups of g micro-batches, and in each
// group chunk 0 takes all of them, then chunk 1, ... (Megatron-LM's schedule table). A last, smaller group holds the
// rest. Backwards walk the same table with chunk v-1-c in place of c.
//
//   m = 5, v = 2, g = 3:    chunk       0 0 0 1 1 1 0 0 1 1
//                           micro-batch 0 1 2 0 1 2 3 4 3 4
#pragma once

#include <algorithm>

namespace train_gpt {

struct ChunkOrder {
  int m;  // micro-batches
  int v;  // chunks per rank
  int g;  // group size

  struct Entry {
    int chunk;
    int micro_batch;
  };

  int size() const { return m * v; }

  // The k-th forward, k = 0 .. m*v-1.
  Entry forward(int k) const {
    const int first = k / (g * v) * g;  // micro-batch that opens the group
    const int members = std::min(g, m - first);
    const int position = k % (g * v);
    return {position / members, first + position % members};
  }

  Entry backward(int k) const {
    const Entry entry = forward(k);
    return {v - 1 - entry.chunk, entry.micro_batch};
  }
};

}  // namespace train_gpt
