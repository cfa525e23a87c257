#include "fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "report.h"

#if defined(EMULATOR_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the callee-saved registers on the old stack, swaps stack pointers, restores from the new one.
asm(R"(
.text
.globl emulator_switch_stack
.type emulator_switch_stack, @function
emulator_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch_stack, .-emulator_switch_stack
)");
extern "C" void emulator_switch_stack(void** save, void* load);

namespace emulator {
namespace {

#if defined(EMULATOR_ASAN)
constexpr std::size_t kStackBytes = 512 << 10;
#else
constexpr std::size_t kStackBytes = 128 << 10;
#endif

}  // namespace

Fiber* make_fiber(void (*entry)()) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, kStackBytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  char* bottom = static_cast<char*>(memory) + page;
  if (memory == MAP_FAILED || mprotect(bottom, kStackBytes, PROT_READ | PROT_WRITE) != 0) {
    fail("resources", "no memory for another thread's stack");
  }
  auto* fiber = new Fiber;
  fiber->stack_bottom = bottom;
  fiber->stack_bytes = kStackBytes;
  // As emulator_switch_stack finds it: six registers, then the address it returns to. The stack is 16-byte aligned
  // before a call, so 8 off at the first instruction of entry().
  auto* top = reinterpret_cast<std::uintptr_t*>(bottom + kStackBytes) - 1;
  *--top = reinterpret_cast<std::uintptr_t>(entry);
  for (int i = 0; i < 6; ++i) *--top = 0;
  fiber->stack_pointer = top;
  return fiber;
}

#if defined(EMULATOR_ASAN)

namespace {
Fiber* fiber_left = nullptr;
}

void switch_fiber(Fiber& from, Fiber& to) {
  fiber_left = &from;
  __sanitizer_start_switch_fiber(&from.sanitizer_state, to.stack_bottom, to.stack_bytes);
  emulator_switch_stack(&from.stack_pointer, to.stack_pointer);
  fiber_entered(from);
}

void fiber_entered(Fiber& self) {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(self.sanitizer_state, &bottom, &bytes);
  // The main stack's bounds are learnt when it is first left.
  if (fiber_left->stack_bottom == nullptr) {
    fiber_left->stack_bottom = const_cast<void*>(bottom);
    fiber_left->stack_bytes = bytes;
  }
}

#else

void switch_fiber(Fiber& from, Fiber& to) { emulator_switch_stack(&from.stack_pointer, to.stack_pointer); }
void fiber_entered(Fiber&) {}

#endif

}  // namespace emulator
