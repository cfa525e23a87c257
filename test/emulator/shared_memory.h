// Shared memory of the running block: one arena, refilled with NaN (0xFF) for every block. Each variable stands between
// red zones: poisoned for AddressSanitizer, known to the race detector, compared after every block otherwise. Dynamic
// shared memory ends at an inaccessible page.
//
// The source rewriter turns
//   __shared__ float tile[32][33];      into   typedef float emulator_type_tile[32][33]; emulator_type_tile& tile = ...
//   extern __shared__ char buffer[];    into   char* buffer = ...
// A variable's address is the same for all blocks of a launch. Its type must not need construction, as in CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace emulator {

// One __shared__ declaration (per template instantiation).
struct SharedVariable {
  const char* name;
  const char* file;
  int line;
  std::size_t bytes;
  std::size_t alignment;
  std::uint64_t launch = 0;  // for which `address` holds
  char* address = nullptr;
};

extern std::uint64_t shared_memory_launch;  // number of the running launch
void* place_shared_variable(SharedVariable& variable);
void* dynamic_shared_memory(const char* file, int line);

template <class Type>
Type& shared_variable(SharedVariable& variable) {
  static_assert(std::is_trivially_destructible_v<Type>);
  if (variable.launch != shared_memory_launch) place_shared_variable(variable);
  return *reinterpret_cast<Type*>(variable.address);
}

// For the runtime.
void shared_memory_launch_begins(std::size_t dynamic_bytes);
void shared_memory_block_begins();
void shared_memory_block_ends();

// Whether the address lies in the arena (red zones included), and the arena's bounds.
struct SharedArena {
  char* begin = nullptr;
  char* end = nullptr;  // the guard page begins here
};
extern SharedArena shared_arena;
inline bool in_shared_arena(const void* pointer) { return pointer >= shared_arena.begin && pointer < shared_arena.end; }
bool inside_shared_variable(const void* pointer, std::size_t bytes);
// Demands that [pointer, pointer + bytes) lies inside one variable; reports `what` otherwise.
void require_shared_range(const void* pointer, std::size_t bytes, const char* what);

}  // namespace emulator

#define EMULATOR_SHARED_VARIABLE(type, name, alignment)                                             \
  ([]() -> type& {                                                                                  \
    static ::emulator::SharedVariable variable{#name, __FILE__, __LINE__, sizeof(type), alignment}; \
    return ::emulator::shared_variable<type>(variable);                                             \
  }())
