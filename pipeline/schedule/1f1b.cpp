// 1F1B (PipeDream-Flush; Narayanan et al. 2021): rank r runs min(p-r-1, m) warm-up forwards, then one forward and one
// backward in turn, then the remaining backwards.
//
//   p = 3, m = 4, backward twice as long as forward
//   rank 0 | F0 F1 F2 .  .  .  .  B0 -- F3 B1 -- .  B2 -- .  B3 --
//   rank 1 | .  F0 F1 .  .  B0 -- F2 B1 -- F3 B2 -- .  B3 --
//   rank 2 | .  .  F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 --
//
// Makespan and bubble as GPipe, (p-1)/(m+p-1), but at most min(m, p-r) activations live on rank r. Any m >= 1.
#include <algorithm>

#include "pipeline/schedule/generators.h"

namespace train_gpt {

Schedule one_f_one_b(int p, int m) {
  Schedule schedule(Placement::loop(p, /*v=*/1, m), m);
  for (int r = 0; r < p; ++r) {
    const int warmup = std::min(p - r - 1, m);
    for (int i = 0; i < warmup; ++i) schedule.rank(r).forward(r, i);
    for (int i = warmup; i < m; ++i) schedule.rank(r).forward(r, i).backward(r, i - warmup);
    for (int i = m - warmup; i < m; ++i) schedule.rank(r).backward(r, i);
  }
  return schedule;
}

}  // namespace train_gpt
