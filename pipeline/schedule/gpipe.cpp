// GPipe (Huang et al. 2019): all forwards, one flush, all backwards, both in micro-batch order.
//
//   p = 3, m = 4, backward twice as long as forward
//   rank 0 | F0 F1 F2 F3 .  .  .  .  .  .  B0 -- B1 -- B2 -- B3 --
//   rank 1 | .  F0 F1 F2 F3 .  .  .  B0 -- B1 -- B2 -- B3 --
//   rank 2 | .  .  F0 F1 F2 F3 B0 -- B1 -- B2 -- B3 --
//
// Makespan (m+p-1)(tF+tB), bubble (p-1)/(m+p-1). All m activations live on every rank: simple and hungry.
#include "pipeline/schedule/generators.h"

namespace train_gpt {

Schedule gpipe(int p, int m) {
  Schedule schedule(Placement::loop(p, /*v=*/1, m), m);
  for (int r = 0; r < p; ++r) {
    for (int i = 0; i < m; ++i) schedule.rank(r).forward(r, i);
    for (int i = 0; i < m; ++i) schedule.rank(r).backward(r, i);
  }
  return schedule;
}

}  // namespace train_gpt
