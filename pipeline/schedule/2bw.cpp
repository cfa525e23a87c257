// PipeDream-2BW (Narayanan et al. 2021), without a flush: rank r runs w(p-1-r) warm-up forwards once, then one forward
// and one backward in turn, across the ends of steps, and the remaining backwards when the pipe is drained.
//
//   p = 3, m = 2, two steps (micro-batches 0 1 and 2 3), backward twice as long as forward
//   rank 0 | F0 F1 F2 .  .  .  .  B0 -- F3 B1 -- .  B2 -- .  B3 --
//   rank 1 | .  F0 F1 .  .  B0 -- F2 B1 -- F3 B2 -- .  B3 --
//   rank 2 | .  .  F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 --
//
// Forwards and backwards of step t compute with the parameters that step t-2 left (t < 2: with the first ones), so two
// buffers of parameters do, and the delay is one step whatever p is. No bubble but that of fill and drain; at most
// w(p-1-r)+1 activations live on rank r. m >= w(p-1): the forwards ahead reach into the next step, never further.
//
// A forward and the backward of what it feeds travel the pipe in (p-1-r) hops each way. With w = 1 a rank waits for
// them as soon as hops cost time; w = 2 keeps twice as many forwards between them.
#include <algorithm>

#include "pipeline/schedule/generators.h"

namespace train_gpt {

Schedule two_buffered_weights(int p, int m, int w, int steps) {
  const int all = m * steps;
  Schedule schedule(Placement::loop(p, /*v=*/1, all), all);
  for (int r = 0; r < p; ++r) {
    const int ahead = std::min(w * (p - 1 - r), all);
    for (int i = 0; i < ahead; ++i) schedule.rank(r).forward(r, i);
    for (int i = ahead; i < all; ++i) schedule.rank(r).forward(r, i).backward(r, i - ahead);
    for (int i = all - ahead; i < all; ++i) schedule.rank(r).backward(r, i);
  }
  schedule.steps = steps;
  return schedule;
}

}  // namespace train_gpt
