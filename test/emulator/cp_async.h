// Asynchronous copies from global to shared memory (cp.async): queued per thread, performed by the wait.
#pragma once

#include <cstddef>

#include "block.h"

namespace emulator {

// Copies `source_bytes` bytes and fills up to `bytes` with zeros, once waited for. Until then the target is NaN.
// `pc`: the instruction, for the race detector's reports.
void cp_async_queue(void* shared, const void* global, std::size_t bytes, std::size_t source_bytes, Where where,
                    const void* pc);
void cp_async_commit_group(Where where);
// Waits until at most `pending_groups` of the thread's committed groups remain.
void cp_async_wait(unsigned pending_groups, Where where);
void cp_async_wait_all_copies(Where where);
void cp_async_thread_ends(const Thread& thread);

}  // namespace emulator
