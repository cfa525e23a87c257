// Breadth-first (looped BFS; Lamy-Poirier 2022): chunk by chunk, all m forwards of a chunk before the next chunk's,
// then the chunks backwards in reverse. Each stage computes its whole batch in one run, which suits sharded parameters.
//
//   p = 2, m = 3, v = 2, backward twice as long as forward; lower case: second chunk (stages 2 and 3)
//   rank 0 | F0 F1 F2 f0 f1 f2 .  .  .  b0 -- b1 -- b2 -- B0 -- B1 -- B2 --
//   rank 1 | .  F0 F1 F2 f0 f1 f2 b0 -- b1 -- b2 -- B0 -- B1 -- B2 --
//
// Makespan m(tF+tB) + (p-1)(tF+tB)/v for m >= p, as interleaved, with every activation of the step alive. The paper
// runs backwards in descending micro-batch order; here they ascend, so that weight gradients add up in the same order
// as in every other schedule.
#include "pipeline/schedule/generators.h"

namespace train_gpt {

Schedule breadth_first(int p, int m, int v) {
  Schedule schedule(Placement::loop(p, v, m), m);
  for (int r = 0; r < p; ++r) {
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int i = 0; i < m; ++i) schedule.rank(r).forward(chunk * p + r, i);
    }
    for (int chunk = v - 1; chunk >= 0; --chunk) {
      for (int i = 0; i < m; ++i) schedule.rank(r).backward(chunk * p + r, i);
    }
  }
  return schedule;
}

}  // namespace train_gpt
