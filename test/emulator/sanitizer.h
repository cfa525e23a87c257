// Closes and opens ranges for AddressSanitizer; nothing in other builds.
#pragma once

#include <cstddef>

#if defined(EMULATOR_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace emulator {

#if defined(EMULATOR_ASAN)
inline void close_memory(const void* pointer, std::size_t bytes) { __asan_poison_memory_region(pointer, bytes); }
inline void open_memory(const void* pointer, std::size_t bytes) { __asan_unpoison_memory_region(pointer, bytes); }
#else
inline void close_memory(const void*, std::size_t) {}
inline void open_memory(const void*, std::size_t) {}
#endif

}  // namespace emulator
