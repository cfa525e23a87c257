// DualPipe (DeepSeek-V3, 2024): micro-batches enter from both ends. Two copies of the parameters, rank r holds stage r
// for the way down and stage p-1-r for the way up, so a forward of one direction can overlap a backward of the other:
// `F&B` below is one fused pair. DualPipeV (Sea AI Lab, 2025) is its upper half, "cut in half": the way up continues
// the way down on the second stage of a V, with one copy of the parameters.
//
//   DualPipe, p = 4, m = 8: list of rank 0 and rank 1; lower case: the micro-batches that entered at the other end
//   rank 0 | F0 F1 F2 f0 i0 w0 f1 F3&b1 f2&B0 b2 f3&B1 b3 I2 W2 I3 W3
//   rank 1 | F0 f0 F1 f1 F2 b0 f2&B0 F3&b1 f3&B1 b2 B2 i3 I3 w3 W3
//   rank 2 and rank 3 mirror rank 1 and rank 0
//
// Both are the same eight steps. With h ranks to the turning point (h = p/2, or p for the V), q = 0 at the end and h-1
// at the turning point, M micro-batches per direction:
//
//   1  2(h-q-1)     F0
//   2  q+1          F0 F1
//   3  h-q-1        I1 W1 F1                     no overlap yet: split, so that the gradient leaves early
//   4  M-2h+q+1     F0&B1 F1&B0                  at the turning point the first pair is not fused: B1 awaits that F0
//   5  h-q-1        B1 F1&B0
//   6  q+1          B1 B0                        the second half of these 2(q+1) runs only I
//   7  h-q-1        W I0
//   8  q+1          W                            one queue of pending W over both chunks
//
// Bubble at equal costs: (h-1)(tFB + tB - 3tW) fused, (h-1)(tF + tI - tW) one after the other, each / 2 for DualPipeV.
// Activations: p+1 on every rank (DualPipe), p + 1/2 (DualPipeV). DualPipe: p and m even, m >= 2p; DualPipeV: m >= 2p.
#include <algorithm>
#include <deque>

#include "pipeline/schedule/generators.h"

namespace train_gpt {

namespace {

// A direction on one rank: its stage there and its progress.
struct Direction {
  int stage;
  int next_forward;
  int next_backward;
};

class Writer {
 public:
  Writer(ListBuilder list, int stage0, int first0, int stage1, int first1)
      : list_(list), directions_{{stage0, first0, first0}, {stage1, first1, first1}} {}

  void forward(int k) { list_.forward(directions_[k].stage, directions_[k].next_forward++); }
  void backward(int k) { list_.backward(directions_[k].stage, directions_[k].next_backward++); }
  void backward_input(int k) {
    list_.backward_input(directions_[k].stage, directions_[k].next_backward);
    pending_.push_back({directions_[k].stage, directions_[k].next_backward++});
  }
  void oldest_weight() {
    list_.backward_weight(pending_.front().stage, pending_.front().micro_batch);
    pending_.pop_front();
  }
  void forward_and_backward(int forward_direction, int backward_direction, bool fused = true) {
    forward(forward_direction);
    if (fused) list_.fuse_with_next();
    backward(backward_direction);
  }

 private:
  struct Pending {
    int stage;
    int micro_batch;
  };
  ListBuilder list_;
  Direction directions_[2];
  std::deque<Pending> pending_;
};

// h, q, M as above. Direction 0 is the one that enters nearer to this rank.
void write_rank(Writer rank, int h, int q, int M) {
  const int to_turn = h - q - 1;  // ranks between this one and the turning point
  // 1.
  for (int i = 0; i < 2 * to_turn; ++i) rank.forward(0);
  // 2.
  for (int i = 0; i < q + 1; ++i) rank.forward(0), rank.forward(1);
  // 3.
  for (int i = 0; i < to_turn; ++i) rank.backward_input(1), rank.oldest_weight(), rank.forward(1);
  // 4.
  for (int i = 0; i < M - 2 * h + q + 1; ++i) {
    rank.forward_and_backward(0, 1, /*fused=*/i > 0 || to_turn > 0);
    rank.forward_and_backward(1, 0);
  }
  // 5.
  for (int i = 0; i < to_turn; ++i) rank.backward(1), rank.forward_and_backward(1, 0);
  // 6.
  for (int i = 0; i < 2 * (q + 1); ++i) {
    const int direction = i % 2 == 0 ? 1 : 0;
    i < q + 1 ? rank.backward(direction) : rank.backward_input(direction);
  }
  // 7.
  for (int i = 0; i < to_turn; ++i) rank.oldest_weight(), rank.backward_input(0);
  // 8.
  for (int i = 0; i < q + 1; ++i) rank.oldest_weight();
}

}  // namespace

Schedule dualpipe(int p, int m) {
  Schedule schedule(Placement::bidirectional(p, m), m);
  const int h = p / 2;
  for (int r = 0; r < p; ++r) {
    const int up = p + (p - 1 - r);
    const Writer writer = r < h ? Writer(schedule.rank(r), r, 0, up, m / 2) : Writer(schedule.rank(r), up, m / 2, r, 0);
    write_rank(writer, h, std::min(r, p - 1 - r), m / 2);
  }
  return schedule;
}

Schedule dualpipev(int p, int m) {
  Schedule schedule(Placement::v_shape(p, m), m);
  for (int r = 0; r < p; ++r) write_rank(Writer(schedule.rank(r), r, 0, 2 * p - 1 - r, 0), p, r, m);
  return schedule;
}

}  // namespace train_gpt
