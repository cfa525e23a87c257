// 1F1B-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): the V placement with backwards that are run
// whole, as 1F1B runs them: two thirds of its activations, the same number on every rank.
//
//   p = 3, m = 5; lower case: second chunk (stages 3 to 5), -- the second half of a B
//   rank 0 | F0 F1 F2 F3 F4 f0 b0 -- f1 b1 -- f2 b2 -- .  .  .  f3 B0 -- b3 -- .  f4 B1 -- b4 -- B2 -- ...
//   rank 1 | .  F0 F1 F2 f0 F3 f1 .  b0 -- f2 b1 -- F4 B0 -- f3 b2 -- .  B1 -- f4 b3 -- .  B2 -- b4 -- B3 -- ...
//   rank 2 | .  .  F0 f0 F1 f1 F2 f2 .  .  b0 -- B0 -- F3 f3 b1 -- B1 -- F4 f4 b2 -- B2 -- b3 -- B3 -- b4 -- ...
//
// A building block says in which slots (one slot: F of one chunk; B takes two) each rank runs the four actions of a
// micro-batch: F_a, F_b, B_b, B_a for its stages a = r and b = 2p-1-r. Micro-batch i repeats it 6i slots later, and its
// slots are chosen such that no two ever meet. F goes from stage to stage in one slot. B takes two, and every third hop
// three slots more, so that three hops are nine slots, which is three modulo 6, as three hops of F are.
//
// Then holes are closed: in the order of the pattern every action moves to the first free slot in which its inputs are
// there, an F only as far as no more activations are alive on the way than the pattern itself keeps at its peak.
//
//   p                                  2   3    4   6     8   12    16
//   makespan bubble, units of tF       2   4  7.5  11  16.5   26  37.5     (tB = 2 tF, m >= 2p)
//   peak on every rank                 2   3    3   5     6    9    11     about 2p/3
#include <algorithm>
#include <array>
#include <utility>

#include "pipeline/schedule/generators.h"

namespace train_gpt {
namespace {

constexpr int kPeriod = 6;  // slots: F and B of two chunks

enum Kind : std::size_t { kForwardA, kForwardB, kBackwardB, kBackwardA, kKinds };
bool is_forward(std::size_t kind) { return kind == kForwardA || kind == kForwardB; }
int length(std::size_t kind) { return is_forward(kind) ? 1 : 2; }

using Block = std::vector<std::array<int, kKinds>>;  // [rank][kind]: the slot of micro-batch 0

Block building_block(int p) {
  Block block(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    block[static_cast<std::size_t>(r)][kForwardA] = r;
    block[static_cast<std::size_t>(r)][kForwardB] = 2 * p - 1 - r;
  }
  int slot = 2 * p + (p % 3 == 0 ? 3 : 0);
  int hops = (3 - (p + 2) % 3) % 3;
  const auto backward = [&](int r, Kind kind) {
    block[static_cast<std::size_t>(r)][kind] = slot;
    slot += 2;
    if (++hops == 3) hops = 0, slot += 3;
  };
  for (int r = 0; r < p; ++r) backward(r, kBackwardB);
  for (int r = p - 1; r >= 0; --r) backward(r, kBackwardA);
  return block;
}

// The slots of one rank, at first those of the pattern.
struct Slots {
  std::vector<char> busy;
  std::vector<int> alive;                       // activations in each slot
  std::array<std::vector<int>, kKinds> start;   // [kind][micro-batch]
  std::vector<std::pair<int, Action>> actions;  // by the slot to which they moved
  int end(std::size_t kind, int micro_batch) const {
    return start[kind][static_cast<std::size_t>(micro_batch)] + length(kind);
  }
};

class Squeeze {
 public:
  Squeeze(int p, int m) : p_(p), m_(m), block_(building_block(p)), ranks_(static_cast<std::size_t>(p)) {
    slots_ = block_[0][kBackwardA] + kPeriod * (m - 1) + 2;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Slots& rank = ranks_[r];
      rank.busy.assign(static_cast<std::size_t>(slots_), 0);
      rank.alive.assign(static_cast<std::size_t>(slots_), 0);
      for (std::size_t kind = 0; kind < kKinds; ++kind) {
        rank.start[kind].assign(static_cast<std::size_t>(m), 0);
        for (int i = 0; i < m; ++i) {
          const int slot = block_[r][kind] + kPeriod * i, last = slot + length(kind) - 1;
          mark(rank, kind, slot, 1);
          rank.alive[static_cast<std::size_t>(last)] += is_forward(kind) ? 1 : -1;
        }
      }
      for (std::size_t t = 1; t < rank.alive.size(); ++t) rank.alive[t] += rank.alive[t - 1];
      peak_ = std::max(peak_, *std::max_element(rank.alive.begin(), rank.alive.end()));
    }
  }

  void run() {
    for (int slot = 0; slot < slots_; ++slot)
      for (int r = 0; r < p_; ++r)
        for (std::size_t kind = 0; kind < kKinds; ++kind) {
          const int since = slot - block_[static_cast<std::size_t>(r)][kind];
          if (since >= 0 && since % kPeriod == 0 && since / kPeriod < m_) move(r, kind, since / kPeriod, slot);
        }
  }

  void write(Schedule& schedule) {
    for (int r = 0; r < p_; ++r) {
      auto& actions = ranks_[static_cast<std::size_t>(r)].actions;
      std::sort(actions.begin(), actions.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
      for (const auto& [slot, action] : actions) schedule.rank(r).add(action.op, action.stage, action.micro_batch);
    }
  }

 private:
  static void mark(Slots& rank, std::size_t kind, int slot, char busy) {
    for (int i = 0; i < length(kind); ++i) rank.busy[static_cast<std::size_t>(slot + i)] = busy;
  }
  static bool is_free(const Slots& rank, std::size_t kind, int slot) {
    for (int i = 0; i < length(kind); ++i)
      if (rank.busy[static_cast<std::size_t>(slot + i)]) return false;
    return true;
  }

  // The first slot after the micro-batch before in which the inputs are there.
  int earliest(int r, std::size_t kind, int micro_batch) const {
    const int before = micro_batch > 0 ? ranks_[static_cast<std::size_t>(r)].end(kind, micro_batch - 1) : 0;
    const bool down = kind == kForwardA || kind == kBackwardB;  // from rank 0 to rank p-1, else back
    const int from = down ? r - 1 : r + 1;
    if (from >= 0 && from < p_) return std::max(before, ranks_[static_cast<std::size_t>(from)].end(kind, micro_batch));
    if (kind == kForwardA) return before;
    return std::max(before, ranks_[static_cast<std::size_t>(r)].end(kind - 1, micro_batch));  // the V's turns
  }

  void move(int r, std::size_t kind, int micro_batch, int slot) {
    Slots& rank = ranks_[static_cast<std::size_t>(r)];
    mark(rank, kind, slot, 0);
    const int first = earliest(r, kind, micro_batch);
    int place = first;
    if (is_forward(kind)) {
      place = slot;
      while (place > first && rank.alive[static_cast<std::size_t>(place - 1)] < peak_) --place;
    }
    while (!is_free(rank, kind, place)) ++place;  // at the latest its slot in the pattern
    mark(rank, kind, place, 1);
    const int change = is_forward(kind) ? 1 : -1, last = length(kind) - 1;
    for (int t = place + last; t < slot + last; ++t) rank.alive[static_cast<std::size_t>(t)] += change;
    rank.start[kind][static_cast<std::size_t>(micro_batch)] = place;
    const bool a = kind == kForwardA || kind == kBackwardA;
    rank.actions.emplace_back(place, Action{.op = is_forward(kind) ? Op::forward : Op::backward,
                                            .stage = a ? r : 2 * p_ - 1 - r,
                                            .micro_batch = micro_batch});
  }

  int p_, m_;
  Block block_;
  int slots_ = 0, peak_ = 0;
  std::vector<Slots> ranks_;
};

}  // namespace

Schedule one_f_one_b_v(int p, int m) {
  Schedule schedule(Placement::v_shape(p, m), m);
  Squeeze squeeze(p, m);
  squeeze.run();
  squeeze.write(schedule);
  return schedule;
}

}  // namespace train_gpt
