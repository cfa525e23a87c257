#include "race_order.h"

#if defined(EMULATOR_RACE)

#include <algorithm>
#include <array>
#include <deque>
#include <unordered_map>
#include <vector>

#include "block.h"
#include "race.h"
#include "stream_queue.h"

namespace emulator::race {

bool in_operation = false;

namespace {

// Segment numbers grow forever; those below `first_segment` are older than everything that can still run.
std::vector<Segment> segments;
std::uint32_t first_segment = 1;
std::deque<OperationInfo> operations;
StreamClock before_operation;  // what the running operation may rely on

std::array<std::uint32_t, kMaxThreads> thread_segment{};  // 0: to be made at the next access
std::uint32_t operation_segment = 0;

// Knowledge of lanes about each other, renewed by __syncwarp: known[lane][other] is the clock of `other` that `lane`
// has synchronised with.
struct WarpClocks {
  std::uint64_t block_serial = 0;
  std::array<std::uint32_t, kWarpLanes> own{};
  std::array<std::array<std::uint32_t, kWarpLanes>, kWarpLanes> known{};
};
std::array<WarpClocks, kMaxWarps> warp_clocks;

WarpClocks& clocks_of(unsigned warp) {
  WarpClocks& clocks = warp_clocks[warp];
  if (clocks.block_serial != the_block.serial) {
    clocks.own.fill(0);
    for (auto& row : clocks.known) row.fill(0);
    clocks.block_serial = the_block.serial;
  }
  return clocks;
}

// A thread that fences and then counts atomically publishes what it did, and what its block did before its last
// barrier. A thread that counts there later knows it, and so does its block after the next barrier.
struct Moment {
  std::uint64_t block_serial = 0;
  std::uint32_t barrier_epoch = 0;
  unsigned thread = 0;
  bool operator==(const Moment&) const = default;
};
struct Acquired {
  Moment published, known;
};
std::array<bool, kMaxThreads> has_fenced{};
std::unordered_map<const void*, std::vector<Moment>> released;
std::vector<Acquired> acquired;

bool covers(const Acquired& known, const Segment& then) {
  const Moment &there = known.published, &here = known.known;
  return then.block_serial == there.block_serial &&
         (then.barrier_epoch < there.barrier_epoch || then.thread == there.thread) &&
         (the_block.barrier_epoch > here.barrier_epoch || current_thread->linear == here.thread);
}

std::uint32_t new_segment() {
  Segment fresh{};
  fresh.operation = static_cast<std::uint32_t>(operations.size() - 1);
  if (current_thread != nullptr) {
    const dim3& grid = the_block.launch->grid;
    fresh.block_serial = the_block.serial;
    fresh.block = the_block.index.x + grid.x * (the_block.index.y + grid.y * the_block.index.z);
    fresh.barrier_epoch = the_block.barrier_epoch;
    fresh.lane_clock = clocks_of(current_thread->warp).own[current_thread->lane];
    fresh.thread = static_cast<std::uint16_t>(current_thread->linear);
  }
  segments.push_back(fresh);
  return first_segment + static_cast<std::uint32_t>(segments.size()) - 1;
}

bool happened_before(const StreamClock& clock, const OperationInfo& operation) {
  return operation.stream < clock.size() && clock[operation.stream] >= operation.sequence;
}

}  // namespace

bool is_forgotten(std::uint32_t number) { return number < first_segment; }
const Segment& segment(std::uint32_t number) { return segments[number - first_segment]; }
const OperationInfo& operation_of(const Segment& then) { return operations[then.operation]; }
const OperationInfo& running_operation() { return operations.back(); }
bool is_running_operation(const Segment& then) { return then.operation + 1 == operations.size(); }

std::uint32_t current_segment() {
  std::uint32_t& number = current_thread != nullptr ? thread_segment[current_thread->linear] : operation_segment;
  if (number == 0) number = new_segment();
  return number;
}

bool ordered(std::uint32_t number) {
  if (is_forgotten(number)) return true;
  const Segment& then = segment(number);
  if (!in_operation) return happened_before(host_clock(), operations[then.operation]);
  if (!is_running_operation(then)) {
    const OperationInfo &earlier = operations[then.operation], &running = operations.back();
    // One that waits is polled again, with others in between: it is ordered with itself.
    const bool same = earlier.stream == running.stream && earlier.sequence == running.sequence;
    return same || happened_before(before_operation, earlier);
  }
  if (current_thread == nullptr) return true;
  if (then.block_serial != the_block.serial) {
    return std::any_of(acquired.begin(), acquired.end(), [&](const Acquired& known) { return covers(known, then); });
  }
  if (then.thread == current_thread->linear || then.barrier_epoch < the_block.barrier_epoch) return true;
  return then.thread / kWarpLanes == current_thread->warp &&
         clocks_of(current_thread->warp).known[current_thread->lane][then.thread % kWarpLanes] > then.lane_clock;
}

void exchange_knowledge(const void* counter) {
  std::vector<Moment>& moments = released[counter];
  const Moment now = {the_block.serial, the_block.barrier_epoch, current_thread->linear};
  for (const Moment& published : moments) acquired.push_back({published, now});
  if (has_fenced[current_thread->linear] && (moments.empty() || moments.back() != now)) moments.push_back(now);
}

void operation_begins(std::uint64_t stream, std::uint32_t sequence, const StreamClock& before, const char* what) {
  // An operation that is polled again stays the same one.
  if (operations.empty() || operations.back().stream != stream || operations.back().sequence != sequence) {
    operations.push_back({stream, sequence, what});
  }
  before_operation = before;
  operation_segment = 0;
  in_operation = true;
}

void operation_ends() {
  in_operation = false;
  released.clear();
}

void all_complete() {
  first_segment += static_cast<std::uint32_t>(segments.size());
  segments.clear();
  operations.clear();
}

void thread_started(Thread& thread) {
  thread_segment[thread.linear] = 0;
  has_fenced[thread.linear] = false;
}

void block_begins() { acquired.clear(); }

void block_synchronised() { std::fill_n(thread_segment.begin(), the_block.threads, 0U); }

void lanes_synchronised(unsigned mask) {
  const unsigned warp = current_thread->warp;
  WarpClocks& clocks = clocks_of(warp);
  std::array<std::uint32_t, kWarpLanes> together{};
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(__builtin_ctz(rest));
    ++clocks.own[lane];
    clocks.known[lane][lane] = clocks.own[lane];
    for (unsigned other = 0; other < kWarpLanes; ++other) {
      together[other] = std::max(together[other], clocks.known[lane][other]);
    }
    thread_segment[warp * kWarpLanes + lane] = 0;
  }
  for (unsigned rest = mask; rest != 0; rest &= rest - 1)
    clocks.known[static_cast<unsigned>(__builtin_ctz(rest))] = together;
}

void fence() {
  if (current_thread != nullptr) has_fenced[current_thread->linear] = true;
}

}  // namespace emulator::race

#endif
