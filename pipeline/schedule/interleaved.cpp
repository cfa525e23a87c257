// Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM): v virtual stages per rank in a loop, rank r holds r, r+p, ...
// Micro-batches pass in groups of g (ChunkOrder), so the pipeline fills with pieces v times shorter.
//
//   p = 2, m = 4, v = 2, g = 2, backward twice as long as forward; lower case: second chunk (stages 2 and 3)
//   rank 0 | F0 F1 f0 f1 F2 .  b0 -- F3 b1 -- f2 B0 -- f3 B1 -- .  b2 -- .  b3 -- B2 -- B3 --
//   rank 1 | .  F0 F1 f0 b0 -- f1 b1 -- F2 B0 -- F3 B1 -- f2 b2 -- f3 b3 -- B2 -- B3 --
//
// Rank r runs (v-1)g + 2(p-1-r) warm-up forwards, then forward and backward in turn, then the remaining backwards. The
// factor 2: a wrap-around to the next chunk is one hop per rank, and with p-1-r it would arrive late.
// Bubble (p-1)/(vm+p-1) for m >= p; at most min(m, ((v-1)g + 2(p-1-r) + 1)/v) activations live. A larger g hides the
// latency of hops for more memory.
#include <algorithm>

#include "pipeline/schedule/chunk_order.h"
#include "pipeline/schedule/generators.h"

namespace train_gpt {

Schedule interleaved(int p, int m, int v, int g) {
  Schedule schedule(Placement::loop(p, v, m), m);
  const ChunkOrder order{m, v, g};
  for (int r = 0; r < p; ++r) {
    const auto forward = [&](int k) {
      const auto [chunk, i] = order.forward(k);
      schedule.rank(r).forward(chunk * p + r, i);
    };
    const auto backward = [&](int k) {
      const auto [chunk, i] = order.backward(k);
      schedule.rank(r).backward(chunk * p + r, i);
    };
    const int warmup = std::min((v - 1) * g + 2 * (p - 1 - r), order.size());
    for (int k = 0; k < warmup; ++k) forward(k);
    for (int k = warmup; k < order.size(); ++k) forward(k), backward(k - warmup);
    for (int k = order.size() - warmup; k < order.size(); ++k) backward(k);
  }
  return schedule;
}

}  // namespace train_gpt
