// V-Half and V-Min (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): the V placement of ZB-V, with the
// lifetime of activations, and so their number, cut down to about 1/2 and 1/3 of 1F1B's by a chosen building block.
//
//   V-Half, p = 4, m = 4, all actions of one length; lower case: second chunk (stages 4 to 7)
//   rank 0 | F0 F1 F2 F3 .  .  .  f0 i0 f1 i1 w0 w1 .  f2 I0 i2 W0 w2 f3 i3 I1 w3 I2 W1 W2 .  I3 W3
//   rank 1 | .  F0 F1 F2 F3 .  f0 .  f1 i0 w0 i1 w1 f2 I0 W0 .  i2 f3 w2 I1 i3 I2 W1 w3 W2 I3 W3
//   rank 2 | .  .  F0 F1 F2 f0 F3 f1 .  .  i0 w0 f2 I0 i1 W0 w1 f3 i2 I1 w2 I2 i3 W1 W2 I3 w3 W3
//   rank 3 | .  .  .  F0 f0 F1 f1 F2 f2 .  .  i0 I0 w0 F3 W0 f3 i1 I1 i2 I2 w1 W1 i3 I3 w2 W2 w3 W3
//
//   its building block, micro-batch 0 alone on rank 0 and rank 3 (slots 0 to 25)
//          | F . . . . . . . . . f . . . i . . . . . . . . . . I
//          | . . . . . . F f . . . . . . . . . . . . i . I . . .
//
// A building block says in which slot (one slot: one action of one chunk) each rank runs the four critical actions of a
// micro-batch: F_a, F_b, I_b, I_a for its stages a = r and b = 2p-1-r. Micro-batch i repeats it 6i slots later; the
// slots were chosen such that no two ever collide and two of six remain for W_b and W_a. The lists follow in one sweep
// over time: in each slot a rank runs
//   1. what the repeated pattern has next, if its inputs are there (the pattern is squeezed: nothing waits for its
//   slot);
//   2. else the oldest pending W;
//   3. else, ahead of its turn, an I (more of them in the cooldown), or an F (in the warm-up) that leaves enough memory
//      for what the pattern keeps alive of the other chunk.
// No F starts unless one activation fewer than the pattern's own peak is alive, so nothing of this raises the memory.
//
//              makespan bubble, units of tF, m >= 2p                     peak on any rank, p = 2, 4, 6, 8, 12, 16
//   V-Half     (3p - 7)/2 (even p > 2), (3p - 4)/2 (odd p)               p/2+1 (even p), (p+1)/2 (odd p)
//   V-Min      (4p - 5)/2, or (4p - 7)/2 if 3 divides p                  2 2 3 4 5 6, about p/3+1
//
// for equal costs. V-Min's bubble grows with m where F, I and W differ, since its activations live so briefly that no
// rank can run ahead of another.
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <stdexcept>

#include "pipeline/schedule/generators.h"

namespace train_gpt {

namespace {

constexpr int kPeriod = 6;  // slots: F, I and W of two chunks

// The four critical actions of a micro-batch on one rank, in the order in which they depend on each other.
enum Critical { kForwardA, kForwardB, kInputB, kInputA, kCriticals };

struct Pattern {
  std::array<int, kCriticals> slot;  // of micro-batch 0
};

Pattern v_half_pattern(int p, int r) {
  const int shift = p % 2 == 0 ? 3 : 0;  // keeps slots apart modulo 6
  return {{2 * r, 3 * p - 2 - r, 3 * p + shift + 2 * r - 1, 6 * p + shift - 2 - r}};
}

Pattern v_min_pattern(int p, int r) {
  const int shift = p % 3 == 0 ? 2 : 0;
  return {{r, 2 * p - 1 - r, 2 * p + shift + r, 4 * p + shift - 1 - r}};
}

// Most activations alive when the pattern repeats forever: of the rank, of chunk a, of chunk b.
struct Alive {
  int both = 0;
  int a = 0;
  int b = 0;
  auto operator<=>(const Alive&) const = default;
};

int floor_div(int x, int y) { return x >= 0 ? x / y : -((-x + y - 1) / y); }

Alive alive_with(const Pattern& pattern, int weight_b, int weight_a) {
  // Activations of slots first + 6i .. last + 6i that are alive in slot t.
  const auto alive_at = [](int t, int first, int last) {
    return floor_div(t - first, kPeriod) - floor_div(t - last - 1, kPeriod);
  };
  Alive most;
  for (int t = 0; t < kPeriod; ++t) {
    const int a = alive_at(t, pattern.slot[kForwardA], weight_a);
    const int b = alive_at(t, pattern.slot[kForwardB], weight_b);
    most = {std::max(most.both, a + b), std::max(most.a, a), std::max(most.b, b)};
  }
  return most;
}

// W_b and W_a go into the two free slots, in the order that keeps fewer activations alive.
Alive most_alive(const Pattern& pattern) {
  std::array<bool, kPeriod> taken = {};
  for (const int slot : pattern.slot) taken[static_cast<std::size_t>(slot % kPeriod)] = true;
  if (std::count(taken.begin(), taken.end(), true) != kCriticals) throw std::logic_error("colliding building block");
  const auto first_free = std::find(taken.begin(), taken.end(), false);
  const auto second_free = std::find(first_free + 1, taken.end(), false);
  const std::array free = {static_cast<int>(first_free - taken.begin()), static_cast<int>(second_free - taken.begin())};
  const auto next_in = [](int after, int residue) {
    return after + 1 + (residue - (after + 1) % kPeriod + kPeriod) % kPeriod;
  };
  const int input_b = pattern.slot[kInputB];
  const int input_a = pattern.slot[kInputA];
  return std::min(alive_with(pattern, next_in(input_b, free[0]), next_in(input_a, free[1])),
                  alive_with(pattern, next_in(input_b, free[1]), next_in(input_a, free[0])));
}

// The slot from which the output of each F and I is there: the one after it ran.
class Outputs {
 public:
  Outputs(int stages, int m)
      : m_(static_cast<std::size_t>(m)),
        forward_(static_cast<std::size_t>(stages) * m_, kNever),
        input_(forward_.size(), kNever) {}

  bool forward_there(int stage, int i, int slot) const { return forward_[at(stage, i)] <= slot; }
  bool input_there(int stage, int i, int slot) const { return input_[at(stage, i)] <= slot; }
  void ran(const Action& action, int slot) {
    (action.op == Op::forward ? forward_ : input_)[at(action.stage, action.micro_batch)] = slot + 1;
  }

 private:
  static constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();
  std::size_t at(int stage, int i) const { return static_cast<std::size_t>(stage) * m_ + static_cast<std::size_t>(i); }

  std::size_t m_;
  std::vector<std::int32_t> forward_, input_;
};

struct RankState {
  Pattern pattern;
  Alive room;                             // activations that the pattern keeps alive here
  std::array<int, kCriticals> next = {};  // micro-batch of the next action of each kind
  int alive[2] = {};                      // activations of chunk a and b
  std::deque<Action> pending_weights;
};

class Sweep {
 public:
  Sweep(Schedule& schedule, bool forwards_may_run_ahead)
      : schedule_(schedule),
        p_(schedule.ranks),
        m_(schedule.micro_batches),
        forwards_may_run_ahead_(forwards_may_run_ahead),
        outputs_(2 * p_, m_),
        ranks_(static_cast<std::size_t>(p_)) {}

  void run(Pattern (*pattern_of)(int p, int r));

 private:
  int stage_of(int r, int kind) const { return kind == kForwardA || kind == kInputA ? r : 2 * p_ - 1 - r; }
  Action action(int r, int kind) const {
    return {.op = kind == kForwardA || kind == kForwardB ? Op::forward : Op::backward_input,
            .stage = stage_of(r, kind),
            .micro_batch = ranks_[static_cast<std::size_t>(r)].next[static_cast<std::size_t>(kind)]};
  }

  bool inputs_there(const Action& action, int slot) const;
  int choose(int r, int slot) const;
  void perform(int r, int kind, int slot);

  static constexpr int kWeight = kCriticals;
  static constexpr int kNothing = kCriticals + 1;

  Schedule& schedule_;
  int p_, m_;
  bool forwards_may_run_ahead_;
  int limit_ = 0;  // activations on any rank
  Outputs outputs_;
  std::vector<RankState> ranks_;
};

bool Sweep::inputs_there(const Action& action, int slot) const {
  const int s = action.stage;
  const int i = action.micro_batch;
  if (i >= m_) return false;
  if (action.op == Op::forward) return s == 0 || outputs_.forward_there(s - 1, i, slot);
  return outputs_.forward_there(s, i, slot) && (s == 2 * p_ - 1 || outputs_.input_there(s + 1, i, slot));
}

// The kind of action that rank r runs in this slot, by the three rules above.
int Sweep::choose(int r, int slot) const {
  const RankState& rank = ranks_[static_cast<std::size_t>(r)];
  const auto turn = [&](int kind) {
    const int i = rank.next[static_cast<std::size_t>(kind)];
    return i < m_ ? rank.pattern.slot[static_cast<std::size_t>(kind)] + std::int64_t{kPeriod} * i
                  : std::numeric_limits<std::int64_t>::max();
  };
  std::array order = {0, 1, 2, 3};
  std::sort(order.begin(), order.end(), [&](int x, int y) { return turn(x) < turn(y); });

  const auto is_forward = [](int kind) { return kind == kForwardA || kind == kForwardB; };
  const bool full = rank.alive[0] + rank.alive[1] >= limit_;
  const auto can_run = [&](int kind) { return inputs_there(action(r, kind), slot) && !(is_forward(kind) && full); };
  if (can_run(order[0])) return order[0];
  if (!rank.pending_weights.empty()) return kWeight;
  for (std::size_t k = 1; k < order.size(); ++k) {
    if (!is_forward(order[k]) && can_run(order[k])) return order[k];
  }
  for (std::size_t k = 1; k < order.size() && forwards_may_run_ahead_; ++k) {
    const int kind = order[k];
    const bool leaves_room =
        kind == kForwardA ? rank.alive[0] < limit_ - rank.room.b : rank.alive[1] < limit_ - rank.room.a;
    if (is_forward(kind) && leaves_room && can_run(kind)) return kind;
  }
  return kNothing;
}

void Sweep::perform(int r, int kind, int slot) {
  RankState& rank = ranks_[static_cast<std::size_t>(r)];
  if (kind == kWeight) {
    const Action weight = rank.pending_weights.front();
    rank.pending_weights.pop_front();
    schedule_.rank(r).backward_weight(weight.stage, weight.micro_batch);
    --rank.alive[weight.stage == r ? 0 : 1];
    return;
  }
  const Action run = action(r, kind);
  schedule_.rank(r).add(run.op, run.stage, run.micro_batch);
  ++rank.next[static_cast<std::size_t>(kind)];
  outputs_.ran(run, slot);
  if (run.op == Op::forward) ++rank.alive[run.stage == r ? 0 : 1];
  if (run.op == Op::backward_input) rank.pending_weights.push_back(run);
}

void Sweep::run(Pattern (*pattern_of)(int p, int r)) {
  for (int r = 0; r < p_; ++r) {
    RankState& rank = ranks_[static_cast<std::size_t>(r)];
    rank.pattern = pattern_of(p_, r);
    rank.room = most_alive(rank.pattern);
    limit_ = std::max(limit_, rank.room.both);
  }
  // An output counts from the next slot on, so the order of the ranks within a slot does not matter.
  std::int64_t left = std::int64_t{kPeriod} * p_ * m_;
  for (int slot = 0; left > 0; ++slot) {
    bool progress = false;
    for (int r = 0; r < p_; ++r) {
      const int kind = choose(r, slot);
      if (kind == kNothing) continue;
      perform(r, kind, slot);
      --left;
      progress = true;
    }
    if (!progress) throw std::logic_error("building block does not repeat");
  }
}

}  // namespace

Schedule v_half(int p, int m) {
  Schedule schedule(Placement::v_shape(p, m), m);
  Sweep(schedule, /*forwards_may_run_ahead=*/true).run(v_half_pattern);
  return schedule;
}

// Only the shifted block leaves gaps in V-Min's warm-up; otherwise F keeps its turn, as published.
Schedule v_min(int p, int m) {
  Schedule schedule(Placement::v_shape(p, m), m);
  Sweep(schedule, /*forwards_may_run_ahead=*/p % 3 == 0).run(v_min_pattern);
  return schedule;
}

}  // namespace train_gpt
