// Counts shared-memory bank conflicts (counters.h: bank_use()) and prints them when the process ends.
#pragma once

#include <cstddef>

namespace emulator {

// One access of the running thread to shared memory, at instruction `pc`.
void count_bank_access(const void* pointer, std::size_t bytes, const void* pc);
// The block has ended: instructions that not all lanes reached are counted now.
void finish_bank_counts();

}  // namespace emulator
