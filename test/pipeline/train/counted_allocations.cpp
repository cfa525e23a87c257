#include "test/pipeline/train/counted_allocations.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {
thread_local std::int64_t allocations = 0;
}

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(std::max<std::size_t>(bytes, 1))) return memory;
  throw std::bad_alloc();
}
// Beside the other one, since AddressSanitizer has its own that must not meet our delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(std::max<std::size_t>(bytes, 1));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace train_gpt::test {

std::int64_t allocations_of_this_thread() { return allocations; }

}  // namespace train_gpt::test
