#include "bank_conflicts.h"

namespace emulator {
void count_bank_access(const void*, std::size_t, const void*) {}
void finish_bank_counts() {}
void count_matrix_rows(void* const*, int, const void* (*)(const void*)) {}
}  // namespace emulator
