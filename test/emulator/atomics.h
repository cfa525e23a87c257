// Atomic functions of device code. One OS thread runs everything, so they are plain read-modify-writes that the race
// detector sees as atomic.
#pragma once

#include <cstdint>
#include <cstring>

#include "block.h"
#include "race.h"

namespace emulator {

// Replaces *target by change(old) and returns old.
template <class T, class Change>
EMULATOR_UNSEEN T atomic_update(T* target, Change change, const void* pc) {
  race::access(target, sizeof(T), race::Access::atomic, pc);
  const T old = *target;
  *target = change(old);
  return old;
}

}  // namespace emulator

#define EMULATOR_ATOMIC(name, type, expression)                                                                    \
  EMULATOR_UNSEEN inline type name(type* target, type value) {                                                     \
    return emulator::atomic_update(                                                                                \
        target, [value](type old) -> type { return static_cast<type>(expression); }, __builtin_return_address(0)); \
  }                                                                                                                \
  EMULATOR_UNSEEN inline type name##_block(type* target, type value) { return name(target, value); }
#define EMULATOR_ATOMIC_INTEGERS(name, expression) \
  EMULATOR_ATOMIC(name, int, expression)           \
  EMULATOR_ATOMIC(name, unsigned, expression)      \
  EMULATOR_ATOMIC(name, unsigned long long, expression)

EMULATOR_ATOMIC(atomicAdd, int, static_cast<unsigned>(old) + static_cast<unsigned>(value))
EMULATOR_ATOMIC(atomicAdd, unsigned, old + value)
EMULATOR_ATOMIC(atomicAdd, unsigned long long, old + value)
EMULATOR_ATOMIC(atomicAdd, float, old + value)
EMULATOR_ATOMIC(atomicAdd, double, old + value)
EMULATOR_ATOMIC(atomicSub, int, static_cast<unsigned>(old) - static_cast<unsigned>(value))
EMULATOR_ATOMIC(atomicSub, unsigned, old - value)
EMULATOR_ATOMIC_INTEGERS(atomicMin, old < value ? old : value)
EMULATOR_ATOMIC_INTEGERS(atomicMax, old > value ? old : value)
EMULATOR_ATOMIC_INTEGERS(atomicAnd, old& value)
EMULATOR_ATOMIC_INTEGERS(atomicOr, old | value)
EMULATOR_ATOMIC_INTEGERS(atomicXor, old ^ value)
EMULATOR_ATOMIC_INTEGERS(atomicExch, (static_cast<void>(old), value))
EMULATOR_ATOMIC(atomicExch, float, (static_cast<void>(old), value))
EMULATOR_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
EMULATOR_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
#undef EMULATOR_ATOMIC
#undef EMULATOR_ATOMIC_INTEGERS

template <class T>
EMULATOR_UNSEEN T atomicCAS(T* target, T compare, T value) {
  return emulator::atomic_update(
      target, [compare, value](T old) { return old == compare ? value : old; }, __builtin_return_address(0));
}
