// ZB-V (Qi et al. 2024): two virtual stages per rank in a V: rank r holds stage a = r on the way down and stage
// b = 2p-1-r on the way back. The loss is computed on rank 0, and no rank keeps more than p micro-batches.
//
//   p = 2, m = 3, all actions of one length; lower case: second chunk (stages 2 and 3)
//   rank 0 | F0 F1 F2 f0 i0 w0 f1 i1 w1 I0 W0 f2 i2 w2 I1 W1 I2 W2
//   rank 1 | .  F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 I1 i2 I2 W1 w2 W2
//
// This is the hand-written list of the paper's authors and of PyTorch. For equal costs its span has no bubble and its
// makespan one of (p-1)tF/2, for m >= 2p-1. With fewer micro-batches the same list is cut: it is written down for
// n = max(m, 2p-1) of them and those from m on are left out.
#include <algorithm>

#include "pipeline/schedule/generators.h"

namespace train_gpt {

namespace {

// Writes the list of one rank, and counts the operations of each of its two stages.
class Writer {
 public:
  Writer(Schedule& schedule, int r) : schedule_(schedule), r_(r), stage_{r, 2 * schedule.ranks - 1 - r} {}

  // Appends op of the next micro-batch of chunk a (0) or b (1); those from m on are counted, not written.
  void next(Op op, int chunk) {
    const int i = done_[chunk][static_cast<int>(op)]++;
    if (i < schedule_.micro_batches) schedule_.rank(r_).add(op, stage_[chunk], i);
  }

  int done(Op op, int chunk) const { return done_[chunk][static_cast<int>(op)]; }

 private:
  Schedule& schedule_;
  int r_;
  int stage_[2];
  int done_[2][4] = {};
};

}  // namespace

Schedule zb_v(int p, int m) {
  Schedule schedule(Placement::v_shape(p, m), m);
  const Op F = Op::forward;
  const Op I = Op::backward_input;
  const Op W = Op::backward_weight;
  const int a = 0;
  const int b = 1;
  const int n = std::max(m, 2 * p - 1);
  for (int r = 0; r < p; ++r) {
    Writer rank(schedule, r);
    // 1. Fill: forwards down, then down and up in turn.
    for (int i = 0; i < 2 * (p - r) - 1; ++i) rank.next(F, a);
    for (int i = 0; i < r; ++i) rank.next(F, b), rank.next(F, a);
    // 2. The gradient comes down the second leg.
    for (int i = 0; i < p - r; ++i) rank.next(F, b), rank.next(I, b), rank.next(W, b);
    // 3. Steady: both legs in turn.
    while (rank.done(F, b) < rank.done(F, a) || rank.done(F, a) < n) {
      if (rank.done(F, a) < n) rank.next(F, a);
      rank.next(I, a), rank.next(W, a);
      rank.next(F, b), rank.next(I, b), rank.next(W, b);
    }
    // 4. Empty: gradients only, with the weights of this rank's last r micro-batches held back.
    for (int i = 0; i < r; ++i) rank.next(I, a), rank.next(I, b);
    for (int i = 0; i < p - r; ++i) rank.next(I, a), rank.next(W, a);
    while (rank.done(W, b) < n) rank.next(W, b);
    while (rank.done(W, a) < n) rank.next(W, a);
  }
  return schedule;
}

}  // namespace train_gpt
