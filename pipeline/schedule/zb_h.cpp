// ZB-H1 and ZB-H2 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism"): 1F1B with a split backward. I passes the
// gradient on as early as possible; W, which nobody waits for, is held back and fills the end.
//
//   ZB-H1, p = 3, m = 4, all actions of one length
//   rank 0 | F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3
//   rank 1 | .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
//   rank 2 | .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
//
//   ZB-H2, p = 3, m = 5: more forwards first, no rank ever waits between its first and last action
//   rank 0 | F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4
//   rank 1 | .  F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4
//   rank 2 | .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4
//
//              warm-up F of rank r   W held back   activations, every rank   makespan bubble
//   ZB-H1      p-1-r                 r             min(m, p)                 (p-1)(tF + max(0, tI-tW))
//   ZB-H2      2(p-1-r)              2r            min(m, 2p-1)              (p-1) max(tF, tF+tI-2tW)
//
// At equal costs the two have the same makespan; ZB-H2's span (first to last action of a rank) has no bubble at all for
// m >= 2p-1. That only pays if the next step's forwards may start before this step has ended everywhere.
#include <algorithm>

#include "pipeline/schedule/generators.h"

namespace train_gpt {

namespace {

// The list of one rank: warmup forwards, then F and I in turn, W always held_back micro-batches later than I.
void split_1f1b(Schedule& schedule, int r, int warmup, int held_back) {
  const int m = schedule.micro_batches;
  warmup = std::min(warmup, m);
  const auto backward = [&](int i) {
    schedule.rank(r).backward_input(r, i);
    if (i >= held_back) schedule.rank(r).backward_weight(r, i - held_back);
  };
  for (int i = 0; i < warmup; ++i) schedule.rank(r).forward(r, i);
  for (int i = warmup; i < m; ++i) {
    schedule.rank(r).forward(r, i);
    backward(i - warmup);
  }
  for (int i = m - warmup; i < m; ++i) backward(i);
  for (int i = std::max(0, m - held_back); i < m; ++i) schedule.rank(r).backward_weight(r, i);
}

}  // namespace

Schedule zb_h1(int p, int m) {
  Schedule schedule(Placement::loop(p, /*v=*/1, m), m);
  for (int r = 0; r < p; ++r) split_1f1b(schedule, r, /*warmup=*/p - 1 - r, /*held_back=*/r);
  return schedule;
}

Schedule zb_h2(int p, int m) {
  Schedule schedule(Placement::loop(p, /*v=*/1, m), m);
  for (int r = 0; r < p; ++r) split_1f1b(schedule, r, /*warmup=*/2 * (p - 1 - r), /*held_back=*/2 * r);
  return schedule;
}

}  // namespace train_gpt
