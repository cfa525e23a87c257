// The functions that code compiled by clang++ -fsanitize=thread calls, in place of ThreadSanitizer's runtime.
#include "race.h"

#if defined(EMULATOR_RACE)

#include <cstring>

using emulator::race::access;
using emulator::race::Access;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}

#define EMULATOR_HOOK(bytes)                                                                                    \
  void __tsan_read##bytes(void* p) { access(p, bytes, Access::read, __builtin_return_address(0)); }             \
  void __tsan_write##bytes(void* p) { access(p, bytes, Access::write, __builtin_return_address(0)); }           \
  void __tsan_unaligned_read##bytes(void* p) { access(p, bytes, Access::read, __builtin_return_address(0)); }   \
  void __tsan_unaligned_write##bytes(void* p) { access(p, bytes, Access::write, __builtin_return_address(0)); } \
  void __tsan_read_write##bytes(void* p) {                                                                      \
    access(p, bytes, Access::read, __builtin_return_address(0));                                                \
    access(p, bytes, Access::write, __builtin_return_address(0));                                               \
  }
EMULATOR_HOOK(1)
EMULATOR_HOOK(2)
EMULATOR_HOOK(4)
EMULATOR_HOOK(8)
EMULATOR_HOOK(16)

void __tsan_read_range(void* p, unsigned long bytes) { access(p, bytes, Access::read, __builtin_return_address(0)); }
void __tsan_write_range(void* p, unsigned long bytes) { access(p, bytes, Access::write, __builtin_return_address(0)); }

// The kernel files' calls of these are renamed when they are compiled.
void* emulator_memcpy(void* to, const void* from, std::size_t bytes) {
  access(from, bytes, Access::read, __builtin_return_address(0));
  access(to, bytes, Access::write, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* emulator_memmove(void* to, const void* from, std::size_t bytes) {
  access(from, bytes, Access::read, __builtin_return_address(0));
  access(to, bytes, Access::write, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* emulator_memset(void* to, int value, std::size_t bytes) {
  access(to, bytes, Access::write, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}

// Host code's own atomics (guards of static variables, reference counts): performed, not checked.
#define EMULATOR_ATOMIC_HOOKS(bits, type)                                                                       \
  type __tsan_atomic##bits##_load(const volatile type* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); } \
  void __tsan_atomic##bits##_store(volatile type* p, type v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); } \
  type __tsan_atomic##bits##_exchange(volatile type* p, type v, int) {                                          \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                         \
  }                                                                                                             \
  type __tsan_atomic##bits##_fetch_add(volatile type* p, type v, int) {                                         \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                                          \
  }                                                                                                             \
  type __tsan_atomic##bits##_fetch_sub(volatile type* p, type v, int) {                                         \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                                          \
  }                                                                                                             \
  type __tsan_atomic##bits##_fetch_and(volatile type* p, type v, int) {                                         \
    return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                                          \
  }                                                                                                             \
  type __tsan_atomic##bits##_fetch_or(volatile type* p, type v, int) {                                          \
    return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                                           \
  }                                                                                                             \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* c, type v, int, int) {              \
    return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                     \
  }                                                                                                             \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* c, type v, int, int) {                \
    return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                     \
  }                                                                                                             \
  type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type c, type v, int, int) {                 \
    __atomic_compare_exchange_n(p, &c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                           \
    return c;                                                                                                   \
  }
EMULATOR_ATOMIC_HOOKS(8, unsigned char)
EMULATOR_ATOMIC_HOOKS(16, unsigned short)
EMULATOR_ATOMIC_HOOKS(32, unsigned)
EMULATOR_ATOMIC_HOOKS(64, unsigned long)
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"

#endif
