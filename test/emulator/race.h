// Race detector (builds with EMULATOR_RACE): kernel files are compiled by clang++ -fsanitize=thread, whose calls into
// its runtime land in race_hooks.cpp instead. Per byte the last write and the last two reads are kept, each with the
// stretch of execution it came from; two accesses of which one writes must be ordered:
//   - within a block by __syncthreads, or by __syncwarp for lanes that both took part,
//   - between blocks of a launch by nothing (but both may be atomic, and a thread that continues after an atomic
//   counter
//     sees what another wrote before __threadfence and its own count there, and what that one's block had done before
//     its last barrier; the rest of its block sees it after the next barrier),
//   - between stream operations by stream order, events and host synchronisation (vector clocks).
// It also knows which bytes were never written, what is not device memory, and what a pending cp.async will fill.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulator {

struct Thread;

// clock[stream number] = how many operations of that stream have happened before.
using StreamClock = std::vector<std::uint32_t>;

namespace race {

enum class Access : std::uint8_t { read, write, atomic };

#if defined(EMULATOR_RACE)
inline constexpr bool kEnabled = true;

// A stream operation (kernel, copy, product) begins: number `sequence` of its stream, after `before`.
void operation_begins(std::uint64_t stream, std::uint32_t sequence, const StreamClock& before, const char* what);
void operation_ends();
// Everything issued so far is complete and known to the host: older accesses order before everything to come.
void all_complete();

void thread_started(Thread& thread);
void block_begins();
void block_synchronised();
void lanes_synchronised(unsigned mask);
void fence();

// By the running thread, or by the running operation outside kernels. `pc`: for the report.
void access(const void* pointer, std::size_t bytes, Access kind, const void* pc);
// A cp.async to the range is under way: nobody may touch it until it has arrived.
void pending(const void* pointer, std::size_t bytes, const void* pc);
void arrived(const void* pointer, std::size_t bytes, const void* pc);
// Device memory was allocated or freed.
void allocations_changed();
#else
inline constexpr bool kEnabled = false;
inline void operation_begins(std::uint64_t, std::uint32_t, const StreamClock&, const char*) {}
inline void operation_ends() {}
inline void all_complete() {}
inline void thread_started(Thread&) {}
inline void block_begins() {}
inline void block_synchronised() {}
inline void lanes_synchronised(unsigned) {}
inline void fence() {}
inline void access(const void*, std::size_t, Access, const void*) {}
inline void pending(const void*, std::size_t, const void*) {}
inline void arrived(const void*, std::size_t, const void*) {}
inline void allocations_changed() {}
#endif

}  // namespace race
}  // namespace emulator
