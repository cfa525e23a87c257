#include "cp_async.h"

#include <cstring>
#include <string>
#include <vector>

#include "memory.h"
#include "race.h"
#include "report.h"
#include "shared_memory.h"
#include "sites.h"

namespace emulator {
namespace {

struct Copy {
  void* shared;
  const void* global;
  std::size_t bytes;
  std::size_t source_bytes;
  unsigned group;
  const void* pc;
};

struct Queue {
  std::uint64_t block = 0;  // whose copies these are
  std::vector<Copy> copies;
  unsigned open_group = 0;  // groups committed so far
};
std::array<Queue, kMaxThreads> queues;
std::uint64_t last_block = 0;  // that queued anything

Queue& queue_of(const Thread& thread) {
  Queue& queue = queues[thread.linear];
  if (queue.block != the_block.serial) {
    queue.block = last_block = the_block.serial;
    queue.copies.clear();
    queue.open_group = 0;
  }
  return queue;
}

// Performs the copies of all groups before `end`.
void complete_before(Queue& queue, unsigned end) {
  std::size_t done = 0;
  for (; done < queue.copies.size() && queue.copies[done].group < end; ++done) {
    const Copy& copy = queue.copies[done];
    std::memcpy(copy.shared, copy.global, copy.source_bytes);
    std::memset(static_cast<char*>(copy.shared) + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
    race::arrived(copy.shared, copy.bytes, copy.pc);
  }
  queue.copies.erase(queue.copies.begin(), queue.copies.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace

void cp_async_queue(void* shared, const void* global, std::size_t bytes, std::size_t source_bytes, Where where,
                    const void* pc) {
  require_device_code("cp.async", where);
  const char* const name = "cp.async";
  current_thread->waits = name;  // only so that a report says where
  current_thread->where = where;
  if (reinterpret_cast<std::uintptr_t>(shared) % bytes != 0 || reinterpret_cast<std::uintptr_t>(global) % bytes != 0) {
    fail("misaligned", "cp.async: both addresses must be multiples of " + std::to_string(bytes));
  }
  if (source_bytes > bytes) fail("misaligned", "cp.async: more source bytes than the copy has");
  require_shared_range(shared, bytes, name);
  if (source_bytes != 0) {
    require_device_range(global, source_bytes, name);
    race::access(global, source_bytes, race::Access::read, pc);
  }
  race::access(shared, bytes, race::Access::write, pc);
  race::pending(shared, bytes, pc);
  std::memset(shared, 0xFF, bytes);
  Queue& queue = queue_of(*current_thread);
  queue.copies.push_back({shared, global, bytes, source_bytes, queue.open_group, pc});
  current_thread->waits = nullptr;
}

void cp_async_commit_group(Where where) {
  require_device_code("cp.async.commit_group", where);
  if (left_out("cp.async.commit_group", where)) return;
  ++queue_of(*current_thread).open_group;
}

void cp_async_wait(unsigned pending_groups, Where where) {
  require_device_code("cp.async.wait_group", where);
  if (left_out("cp.async.wait_group", where)) return;
  Queue& queue = queue_of(*current_thread);
  if (queue.open_group > pending_groups) complete_before(queue, queue.open_group - pending_groups);
}

void cp_async_wait_all_copies(Where where) {
  require_device_code("cp.async.wait_all", where);
  if (left_out("cp.async.wait_all", where)) return;
  Queue& queue = queue_of(*current_thread);
  complete_before(queue, ++queue.open_group);
}

// Copies that were never waited for can no longer be read by anybody.
void cp_async_thread_ends(const Thread& thread) {
  if (last_block != the_block.serial) return;
  if (Queue& queue = queues[thread.linear]; queue.block == the_block.serial) queue.copies.clear();
}

}  // namespace emulator
