#include "test/counted_allocations.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

thread_local std::int64_t allocations = 0;
std::atomic<std::int64_t> allocations_of_all = 0;

void count() {
  ++allocations;
  allocations_of_all.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void* operator new(std::size_t bytes) {
  count();
  if (void* memory = std::malloc(std::max<std::size_t>(bytes, 1))) return memory;
  throw std::bad_alloc();
}
// Beside the other one, since AddressSanitizer has its own that must not meet our delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  count();
  return std::malloc(std::max<std::size_t>(bytes, 1));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace train_gpt::test {

std::int64_t allocations_of_this_thread() { return allocations; }
std::int64_t allocations_of_this_process() { return allocations_of_all; }

}  // namespace train_gpt::test
