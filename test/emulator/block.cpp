#include "block.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "bank_conflicts.h"
#include "cp_async.h"
#include "fiber.h"
#include "race.h"
#include "random.h"
#include "report.h"
#include "settings.h"
#include "shared_memory.h"
#include "sites.h"

namespace emulator {

Block the_block;
Thread* current_thread = nullptr;

bool Where::operator==(const Where& other) const {
  return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
}

std::string text(const Where& where) { return std::string(where.file) + ":" + std::to_string(where.line); }

namespace {

Random order_random;
ThreadOrder thread_order = ThreadOrder::forward;  // of this launch
unsigned ready_warps = 0;
Fiber main_fiber;
Fiber* running_fiber = nullptr;
Fiber* free_fibers = nullptr;
Thread* thread_to_start = nullptr;  // for the fiber about to be resumed

std::string text(const uint3& v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

// ---- choice of the next thread ------------------------------------------------------------------------------------

// Now and then (once in 16 choices) one warp gets another priority and lane order. A warp then keeps its rank for
// several barriers, which is what brings out a missing second barrier; uniformly random choices do not.
void shake_priorities() {
  if (order_random.below(16) != 0) return;
  Warp& warp = the_block.warp[order_random.below(the_block.warps)];
  warp.priority = order_random.below(1U << 16);
  warp.rotation = order_random.below(kWarpLanes);
  warp.backward = order_random.below(2) != 0;
}

unsigned choose_lane(const Warp& warp) {
  const unsigned rotated = warp.ready >> warp.rotation | (warp.rotation == 0 ? 0 : warp.ready << (32 - warp.rotation));
  const unsigned step = warp.backward ? 31U - static_cast<unsigned>(__builtin_clz(rotated))
                                      : static_cast<unsigned>(__builtin_ctz(rotated));
  return (step + warp.rotation) % kWarpLanes;
}

// The thread to run next, or nullptr if none can.
Thread* choose_thread() {
  if (ready_warps == 0) return nullptr;
  unsigned w = static_cast<unsigned>(__builtin_ctz(ready_warps));
  switch (thread_order) {
    case ThreadOrder::forward:
      return &the_block.thread[w * kWarpLanes + static_cast<unsigned>(__builtin_ctz(the_block.warp[w].ready))];
    case ThreadOrder::reverse:
      w = 31U - static_cast<unsigned>(__builtin_clz(ready_warps));
      return &the_block.thread[w * kWarpLanes + 31U - static_cast<unsigned>(__builtin_clz(the_block.warp[w].ready))];
    case ThreadOrder::random:
      break;
  }
  shake_priorities();
  for (unsigned rest = ready_warps & (ready_warps - 1); rest != 0; rest &= rest - 1) {
    const auto other = static_cast<unsigned>(__builtin_ctz(rest));
    if (the_block.warp[other].priority > the_block.warp[w].priority) w = other;
  }
  return &the_block.thread[w * kWarpLanes + choose_lane(the_block.warp[w])];
}

void set_ready(unsigned w, unsigned lanes) {
  the_block.warp[w].ready |= lanes;
  if (lanes != 0) ready_warps |= 1U << w;
}

void set_not_ready(const Thread& thread) {
  Warp& warp = the_block.warp[thread.warp];
  warp.ready &= ~(1U << thread.lane);
  if (warp.ready == 0) ready_warps &= ~(1U << thread.warp);
}

// ---- switching ----------------------------------------------------------------------------------------------------

void switch_to(Fiber& to) {
  Fiber& from = *running_fiber;
  running_fiber = &to;
  switch_fiber(from, to);
}

bool has_started(const Thread& thread) { return (the_block.warp[thread.warp].started >> thread.lane & 1U) != 0; }

void check_barrier_after_exit();
void fiber_main();

// Leaves the running fiber for `next` (nullptr: for the main stack, which finds out why nothing can run).
void resume(Thread* next) {
  current_thread = next;
  if (next == nullptr) {
    switch_to(main_fiber);
  } else if (has_started(*next)) {
    switch_to(*next->fiber);
  } else {
    Fiber* fiber = free_fibers;
    if (fiber != nullptr) {
      free_fibers = fiber->next_free;
    } else {
      fiber = make_fiber(fiber_main);
    }
    thread_to_start = next;
    switch_to(*fiber);
  }
}

void run_thread(Thread& thread) {
  Warp& warp = the_block.warp[thread.warp];
  warp.started |= 1U << thread.lane;
  race::thread_started(thread);
  the_block.launch->invoke(the_block.launch->arguments);
  cp_async_thread_ends(thread);
  warp.exited |= 1U << thread.lane;
  ++the_block.exited;
  set_not_ready(thread);
  if (the_block.barrier_arrived != 0) check_barrier_after_exit();
}

void fiber_main() {
  Fiber& self = *running_fiber;
  fiber_entered(self);
  while (true) {
    run_thread(*thread_to_start);
    Thread* next = choose_thread();
    if (next != nullptr && !has_started(*next)) {  // on this same stack
      current_thread = thread_to_start = next;
      continue;
    }
    self.next_free = free_fibers;
    free_fibers = &self;
    resume(next);
  }
}

// The running thread waits: runs others until somebody makes it ready again and it is chosen.
void wait(Thread& self) {
  Thread* next = choose_thread();
  if (next == &self) return;
  self.fiber = running_fiber;
  resume(next);
}

// ---- blocks -------------------------------------------------------------------------------------------------------

// "threads 0-31 wait in __syncthreads at a.cu:3", one line per group of neighbours that wait for the same.
std::string describe_waiting() {
  std::string lines;
  const auto same = [](const Thread& a, const Thread& b) {
    const bool a_exited = (the_block.warp[a.warp].exited >> a.lane & 1U) != 0;
    const bool b_exited = (the_block.warp[b.warp].exited >> b.lane & 1U) != 0;
    if (a_exited || b_exited) return a_exited == b_exited;
    return a.waits == b.waits && a.where == b.where && a.waits_for == b.waits_for;
  };
  for (unsigned begin = 0; begin < the_block.threads;) {
    unsigned end = begin + 1;
    while (end < the_block.threads && same(the_block.thread[begin], the_block.thread[end])) ++end;
    const Thread& thread = the_block.thread[begin];
    lines += "\n    thread" + (end - begin > 1 ? "s " + std::to_string(begin) + "-" + std::to_string(end - 1)
                                               : " " + std::to_string(begin));
    if ((the_block.warp[thread.warp].exited >> thread.lane & 1U) != 0) {
      lines += " left the kernel";
    } else if (thread.waits != nullptr) {
      lines += std::string(" in ") + thread.waits + " at " + text(thread.where);
      if (thread.waits_for != 0) {
        char mask[16];
        std::snprintf(mask, sizeof mask, "0x%08x", thread.waits_for);
        lines += std::string(" for lanes ") + mask;
      }
    } else {
      lines += " running";
    }
    begin = end;
  }
  return lines;
}

void check_barrier_after_exit() {
  if (the_block.barrier_arrived + the_block.exited < the_block.threads) return;
  fail("barrier-divergence", std::string(the_block.barrier_name) + " at " + text(the_block.barrier_where) +
                                 " is not reached by all threads of the block: some left the kernel" +
                                 describe_waiting());
}

void prepare_threads(const dim3& size) {
  static dim3 prepared{0, 0, 0};
  if (prepared.x == size.x && prepared.y == size.y && prepared.z == size.z) return;
  prepared = size;
  unsigned n = 0;
  for (unsigned z = 0; z < size.z; ++z) {
    for (unsigned y = 0; y < size.y; ++y) {
      for (unsigned x = 0; x < size.x; ++x, ++n) {
        Thread thread;
        thread.index = {x, y, z};
        thread.linear = n;
        thread.lane = n % kWarpLanes;
        thread.warp = n / kWarpLanes;
        the_block.thread[n] = thread;
      }
    }
  }
}

void run_block() {
  static std::uint64_t serial = 0;
  the_block.serial = ++serial;
  the_block.exited = 0;
  the_block.barrier_arrived = 0;
  the_block.barrier_epoch = 0;
  ready_warps = 0;
  const bool random = thread_order == ThreadOrder::random;
  for (unsigned w = 0; w < the_block.warps; ++w) {
    const unsigned lanes = the_block.threads - w * kWarpLanes;
    Warp& warp = the_block.warp[w];
    warp.lanes = lanes >= kWarpLanes ? ~0U : (1U << lanes) - 1;
    warp.started = warp.exited = warp.ready = warp.meeting = 0;
    if (random) warp.priority = order_random.below(1U << 16);
    set_ready(w, warp.lanes);
  }
  shared_memory_block_begins();
  race::block_begins();
  running_fiber = &main_fiber;
  resume(choose_thread());
  if (the_block.exited != the_block.threads) {
    fail("deadlock", "no thread of the block can continue" + describe_waiting());
  }
  shared_memory_block_ends();
  finish_bank_counts();
}

}  // namespace

void run_launch(const Launch& launch) {
  const dim3& grid = launch.grid;
  the_block.launch = &launch;
  thread_order = settings().thread_order;
  the_block.threads = launch.block.x * launch.block.y * launch.block.z;
  the_block.warps = (the_block.threads + kWarpLanes - 1) / kWarpLanes;
  prepare_threads(launch.block);
  shared_memory_launch_begins(launch.dynamic_shared);
  static std::uint64_t launches = 0;
  order_random.start(settings().seed * 0x9E3779B97F4A7C15ULL + ++launches);

  const std::uint64_t all_blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  const std::uint64_t skipped =
      settings().last_blocks == 0 ? 0 : all_blocks - std::min(all_blocks, settings().last_blocks);
  const std::uint64_t blocks = all_blocks - skipped;
  std::vector<std::uint32_t> shuffled;
  if (thread_order == ThreadOrder::random) {
    shuffled.resize(blocks);
    std::iota(shuffled.begin(), shuffled.end(), 0U);
    for (std::uint64_t i = blocks; i > 1; --i) {
      std::swap(shuffled[i - 1], shuffled[order_random.below(static_cast<std::uint32_t>(i))]);
    }
  }
  for (std::uint64_t i = 0; i < blocks; ++i) {
    std::uint64_t b = i;
    if (thread_order == ThreadOrder::reverse) b = blocks - 1 - i;
    if (thread_order == ThreadOrder::random) b = shuffled[i];
    b += skipped;
    the_block.index = {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                       static_cast<unsigned>(b / grid.x / grid.y)};
    run_block();
  }
  the_block.launch = nullptr;
}

void require_device_code(const char* name, Where where) {
  if (current_thread == nullptr) {
    fail("device-function-on-host", std::string(name) + " called by host code at " + text(where));
  }
}

int block_barrier(const char* name, int predicate, Where where) {
  require_device_code(name, where);
  if (left_out(name, where)) return predicate != 0 ? 1 : 0;
  Thread& self = *current_thread;
  self.waits = name;
  self.where = where;
  self.waits_for = 0;
  if (the_block.barrier_arrived == 0) {
    the_block.barrier_name = name;
    the_block.barrier_where = where;
    the_block.barrier_votes = 0;
  } else if (!(the_block.barrier_where == where) || std::strcmp(the_block.barrier_name, name) != 0) {
    fail("barrier-divergence", std::string(name) + " at " + text(where) + " while other threads of the block are in " +
                                   the_block.barrier_name + " at " + text(the_block.barrier_where) +
                                   describe_waiting());
  }
  the_block.barrier_votes += predicate != 0 ? 1 : 0;
  set_not_ready(self);
  if (++the_block.barrier_arrived == the_block.threads) {
    the_block.barrier_arrived = 0;
    the_block.barrier_result = the_block.barrier_votes;
    ++the_block.barrier_epoch;
    race::block_synchronised();
    for (unsigned w = 0; w < the_block.warps; ++w) set_ready(w, the_block.warp[w].lanes);
  } else if (the_block.exited != 0) {
    check_barrier_after_exit();
  }
  wait(self);
  // Every thread reads the result before it can reach, and so complete, the next barrier.
  self.waits = nullptr;
  return the_block.barrier_result;
}

namespace {

// The meeting of these lanes that is going on, or a new one.
Meeting& join_meeting(Warp& warp, const char* name, unsigned mask, Where where) {
  for (unsigned rest = warp.meeting; rest != 0; rest &= rest - 1) {
    Meeting& meeting = warp.meetings[static_cast<unsigned>(__builtin_ctz(rest))];
    if (meeting.mask != mask) continue;
    if (meeting.operation == name || std::strcmp(meeting.operation, name) == 0) return meeting;
    fail("warp-divergence", std::string(name) + " at " + text(where) + " meets " + meeting.operation + " at " +
                                text(meeting.where) + describe_waiting());
  }
  const auto slot = static_cast<unsigned>(__builtin_ctz(~warp.meeting));
  warp.meeting |= 1U << slot;
  Meeting& meeting = warp.meetings[slot];
  meeting.operation = name;
  meeting.mask = mask;
  meeting.where = where;
  meeting.arrived = 0;
  if (mask != ~0U) meeting.arguments.fill(nullptr);
  return meeting;
}

}  // namespace

void warp_operation(const char* name, unsigned mask, void* arguments, WarpFunction run, Where where) {
  require_device_code(name, where);
  Thread& self = *current_thread;
  Warp& warp = the_block.warp[self.warp];
  self.waits = name;
  self.where = where;
  self.waits_for = mask;
  mask &= warp.lanes;  // lanes that a small block does not have count as absent everywhere, as on a GPU
  const unsigned bit = 1U << self.lane;
  if ((mask & bit) == 0)
    fail("warp-mask", std::string(name) + " at " + text(where) + ": the mask lacks the calling lane");
  if ((mask & warp.exited) != 0) {
    fail("absent-lanes",
         std::string(name) + " at " + text(where) + " names lanes that have left the kernel" + describe_waiting());
  }
  Meeting& meeting = join_meeting(warp, name, mask, where);
  meeting.arguments[self.lane] = arguments;
  meeting.arrived |= bit;
  if (meeting.arrived != mask) {
    set_not_ready(self);
    wait(self);
  } else {
    warp.meeting &= ~(1U << (&meeting - warp.meetings.data()));
    if (run != nullptr) run(meeting.arguments.data(), mask);
    set_ready(self.warp, mask);
    wait(self);
  }
  self.waits = nullptr;
}

unsigned active_lanes() {
  const Warp& warp = the_block.warp[current_thread->warp];
  return warp.lanes & ~warp.exited;
}

bool on_own_stack(const void* pointer) {
  const char* bottom = static_cast<const char*>(running_fiber->stack_bottom);
  return pointer >= bottom && pointer < bottom + running_fiber->stack_bytes;
}

std::string describe_position() {
  if (the_block.launch == nullptr) return "";
  std::string position = "  kernel  " + the_block.launch->kernel + " (launched at " + text(the_block.launch->where) +
                         "), block " + text(the_block.index);
  if (current_thread != nullptr) {
    position += ", thread " + text(current_thread->index);
    if (current_thread->waits != nullptr) {
      position += std::string(", in ") + current_thread->waits + " at " + text(current_thread->where);
    }
  }
  return position + "\n";
}

}  // namespace emulator
