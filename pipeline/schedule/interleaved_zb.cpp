// Interleaved zero bubble (PyTorch's ScheduleInterleavedZeroBubble): interleaved 1F1B whose backward is split. I goes
// out at once, W fills what would be bubble at the end.
//
//   p = 2, m = 4, v = 2, g = 2, all actions of one length; lower case: second chunk (stages 2 and 3)
//   rank 0 | F0 F1 f0 f1 .  i0 w0 F2 i1 w1 F3 I0 W0 f2 I1 W1 f3 i2 w2 i3 w3 I2 W2 I3 W3
//   rank 1 | .  F0 F1 f0 i0 f1 i1 w0 F2 I0 w1 F3 I1 W0 f2 i2 W1 f3 i3 w2 I2 w3 I3 W2 W3
//
// Rank r runs (v-1)g + (p-1-r) warm-up forwards, then F and I in turn; from its (r+1)-th I on each I is followed by the
// oldest pending W, so rank r keeps r of them back; the rest comes last.
// Makespan m(tF+tB) + (p-1)(tF + max(0, tI-tW))/v for m >= p; at most min(m, ((v-1)g + p)/v) activations live.
#include <algorithm>

#include "pipeline/schedule/chunk_order.h"
#include "pipeline/schedule/generators.h"

namespace train_gpt {

Schedule interleaved_zb(int p, int m, int v, int g) {
  Schedule schedule(Placement::loop(p, v, m), m);
  const ChunkOrder order{m, v, g};
  for (int r = 0; r < p; ++r) {
    const auto forward = [&](int k) {
      const auto [chunk, i] = order.forward(k);
      schedule.rank(r).forward(chunk * p + r, i);
    };
    const auto backward_weight = [&](int k) {
      const auto [chunk, i] = order.backward(k);
      schedule.rank(r).backward_weight(chunk * p + r, i);
    };
    const auto backward = [&](int k) {
      const auto [chunk, i] = order.backward(k);
      schedule.rank(r).backward_input(chunk * p + r, i);
      if (k >= r) backward_weight(k - r);
    };
    const int warmup = std::min((v - 1) * g + p - 1 - r, order.size());
    for (int k = 0; k < warmup; ++k) forward(k);
    for (int k = warmup; k < order.size(); ++k) forward(k), backward(k - warmup);
    for (int k = order.size() - warmup; k < order.size(); ++k) backward(k);
    for (int k = std::max(0, order.size() - r); k < order.size(); ++k) backward_weight(k);
  }
  return schedule;
}

}  // namespace train_gpt
