// PipeDream (Narayanan et al. 2019) with weight stashing: the lists of 2bw (w = 1), and an update after every backward.
//
//   p = 3, backward twice as long as forward; below each forward the version of the parameters that it uses, and its
//   backward once more: how many updates made them
//   rank 0 | F0 F1 F2 .  .  .  .  B0 -- F3 B1 -- F4 B2 -- F5 B3 --
//            0  0  0              0     1  0     2  0     3  1
//   rank 1 | .  F0 F1 .  .  B0 -- F2 B1 -- F3 B2 -- F4 B3 -- F5
//               0  0        0     1  0     2  1     3  2     4
//   rank 2 | .  .  F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 -- F4 B4 --
//                  0  0     1  1     2  2     3  3     4  4
//
// Rank r takes F(i) and B(i) with version max(0, i - (p-1-r)), the newest there is when F(i) begins, and keeps p-r of
// them, since up to that many micro-batches are between their F and their B. The gradient goes to the newest. Each
// micro-batch is a step of the optimizer, and what is old by how much depends on the rank: so do the results on p and
// on the cut. No bubble but that of fill and drain.
#include "pipeline/schedule/generators.h"

namespace train_gpt {

Schedule pipedream(int p, int m, int steps) { return two_buffered_weights(p, m, /*w=*/1, steps); }

}  // namespace train_gpt
