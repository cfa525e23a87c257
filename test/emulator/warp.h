// Barriers, fences and warp operations of device code, on the rendezvous in block.h. The default arguments record the
// caller's source line.
#pragma once

#include <cstring>

#include "block.h"
#include "race.h"

#define EMULATOR_WHERE const char *emulator_file = __builtin_FILE(), int emulator_line = __builtin_LINE()
#define EMULATOR_HERE \
  ::emulator::Where { emulator_file, emulator_line }

namespace emulator {

// Shuffles: each lane offers a value and names the lane it reads; a segment of `width` lanes is a world of its own.
struct Shuffle {
  std::uint64_t value = 0;
  unsigned source = 0;  // lane to read
  std::uint64_t result = 0;
};
void exchange(const char* name, unsigned mask, Shuffle& shuffle, Where where);

// Votes, matches and reductions: each lane offers a 64-bit value.
struct Vote {
  std::uint64_t value = 0;
  std::uint64_t result = 0;
};
std::uint64_t vote(const char* name, unsigned mask, std::uint64_t value, WarpFunction run, Where where);

void synchronise_lanes(unsigned mask, Where where);

// For a thread that waits for what another writes. Blocks run one after the other, and threads until they wait by a
// barrier: what is not there at once never comes, which is an error.
void nap(Where where);

enum class ShuffleKind : std::uint8_t { index, up, down, bits };
// The lane that the calling lane reads, in a segment of `width` lanes (PTX ISA, shfl.sync).
unsigned shuffle_source(ShuffleKind kind, unsigned operand, int width, Where where);

template <class T>
T shuffle(const char* name, ShuffleKind kind, unsigned mask, T value, unsigned operand, int width, Where where) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t), "a shuffle moves at most 8 bytes");
  require_device_code(name, where);
  Shuffle call;
  std::memcpy(&call.value, &value, sizeof(T));
  call.source = shuffle_source(kind, operand, width, where);
  exchange(name, mask, call, where);
  std::memcpy(static_cast<void*>(&value), &call.result, sizeof(T));
  return value;
}

template <class T>
T reduce(const char* name, unsigned mask, T value, T (*combine)(T, T), Where where) {
  struct Call {
    T value;
    T (*combine)(T, T);
  } call{value, combine};
  warp_operation(
      name, mask, &call,
      [](void* const* arguments, unsigned lanes) EMULATOR_UNSEEN {
        Call* first = static_cast<Call*>(arguments[__builtin_ctz(lanes)]);
        T total = first->value;
        for (unsigned rest = lanes & (lanes - 1); rest != 0; rest &= rest - 1) {
          total = first->combine(total, static_cast<Call*>(arguments[__builtin_ctz(rest)])->value);
        }
        for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
          static_cast<Call*>(arguments[__builtin_ctz(rest)])->value = total;
        }
      },
      where);
  return call.value;
}

void vote_ballot(void* const* arguments, unsigned mask);
void vote_match_any(void* const* arguments, unsigned mask);

}  // namespace emulator

// ---- barriers and fences ----
inline void __syncthreads(EMULATOR_WHERE) { emulator::block_barrier("__syncthreads", 0, EMULATOR_HERE); }
inline int __syncthreads_count(int predicate, EMULATOR_WHERE) {
  return emulator::block_barrier("__syncthreads_count", predicate, EMULATOR_HERE);
}
inline int __syncthreads_or(int predicate, EMULATOR_WHERE) {
  return emulator::block_barrier("__syncthreads_or", predicate, EMULATOR_HERE) != 0;
}
inline int __syncthreads_and(int predicate, EMULATOR_WHERE) {
  return emulator::block_barrier("__syncthreads_and", predicate, EMULATOR_HERE) ==
         static_cast<int>(emulator::the_block.threads);
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU, EMULATOR_WHERE) {
  emulator::synchronise_lanes(mask, EMULATOR_HERE);
}
inline void __threadfence() { emulator::race::fence(); }
inline void __threadfence_block() { emulator::race::fence(); }
inline void __threadfence_system() { emulator::race::fence(); }
inline void __nanosleep(unsigned, EMULATOR_WHERE) { emulator::nap(EMULATOR_HERE); }

// ---- shuffles ----
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, EMULATOR_WHERE) {
  return emulator::shuffle("__shfl_sync", emulator::ShuffleKind::index, mask, value, static_cast<unsigned>(lane), width,
                           EMULATOR_HERE);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATOR_WHERE) {
  return emulator::shuffle("__shfl_up_sync", emulator::ShuffleKind::up, mask, value, delta, width, EMULATOR_HERE);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATOR_WHERE) {
  return emulator::shuffle("__shfl_down_sync", emulator::ShuffleKind::down, mask, value, delta, width, EMULATOR_HERE);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMULATOR_WHERE) {
  return emulator::shuffle("__shfl_xor_sync", emulator::ShuffleKind::bits, mask, value, static_cast<unsigned>(bits),
                           width, EMULATOR_HERE);
}

// ---- votes ----
inline unsigned __activemask() { return emulator::active_lanes(); }
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATOR_WHERE) {
  return static_cast<unsigned>(
      emulator::vote("__ballot_sync", mask, predicate != 0, emulator::vote_ballot, EMULATOR_HERE));
}
inline int __any_sync(unsigned mask, int predicate, EMULATOR_WHERE) {
  return emulator::vote("__any_sync", mask, predicate != 0, emulator::vote_ballot, EMULATOR_HERE) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMULATOR_WHERE) {
  return emulator::vote("__all_sync", mask, predicate == 0, emulator::vote_ballot, EMULATOR_HERE) == 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, EMULATOR_WHERE) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return static_cast<unsigned>(emulator::vote("__match_any_sync", mask, bits, emulator::vote_match_any, EMULATOR_HERE));
}

// ---- reductions over int and unsigned, as sm_80 has them ----
#define EMULATOR_REDUCE(name, type, expression)                                                \
  inline type name(unsigned mask, type value, EMULATOR_WHERE) {                                \
    return emulator::reduce<type>(                                                             \
        #name, mask, value, [](type a, type b) -> type { return expression; }, EMULATOR_HERE); \
  }
EMULATOR_REDUCE(__reduce_add_sync, unsigned, a + b)
EMULATOR_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
EMULATOR_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
EMULATOR_REDUCE(__reduce_add_sync, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
EMULATOR_REDUCE(__reduce_min_sync, int, a < b ? a : b)
EMULATOR_REDUCE(__reduce_max_sync, int, a > b ? a : b)
EMULATOR_REDUCE(__reduce_and_sync, unsigned, a& b)
EMULATOR_REDUCE(__reduce_or_sync, unsigned, a | b)
EMULATOR_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef EMULATOR_REDUCE
