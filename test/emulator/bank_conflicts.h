// Counts shared-memory bank conflicts (counters.h: bank_use()).
#pragma once

#include <cstddef>

namespace emulator {

// One access of the running thread to shared memory, at instruction `pc`.
void count_bank_access(const void* pointer, std::size_t bytes, const void* pc);
// The block has ended: instructions that not all lanes reached are counted now.
void finish_bank_counts();
// The rows that ldmatrix reads: lanes 0 to count-1, eight rows of 16 bytes per pass.
void count_matrix_rows(void* const* arguments, int count, const void* (*row)(const void* argument));

}  // namespace emulator
