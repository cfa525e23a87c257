// Fibers: stacks between which the emulator switches by hand (20 instructions, no system call). A fiber runs `entry`
// once, which never returns; it is parked and resumed forever. x86-64 System V only.
#pragma once

#include <cstddef>

namespace emulator {

struct Fiber {
  void* stack_pointer = nullptr;  // while it is not running
  void* stack_bottom = nullptr;   // lowest usable address
  std::size_t stack_bytes = 0;
  void* sanitizer_state = nullptr;  // AddressSanitizer's fake stack
  Fiber* next_free = nullptr;
};

// A new fiber with a guard page below its stack; the first switch to it calls entry().
Fiber* make_fiber(void (*entry)());

// Suspends the running fiber (its state is kept in `from`) and resumes `to`.
void switch_fiber(Fiber& from, Fiber& to);

// To be called first by entry(), because the first switch to a fiber does not return from switch_fiber.
void fiber_entered(Fiber& self);

}  // namespace emulator
