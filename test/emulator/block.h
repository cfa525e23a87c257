// One block at a time, one fiber per CUDA thread, all on the calling OS thread. A thread runs until it has to wait for
// others (barrier, warp operation) or ends; then the next one is chosen by Settings::thread_order. A thread that never
// waits needs no switch at all.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

// Functions in headers that the race detector must not see: they are compiled with the program's kernel files.
#if defined(__clang__)
#define EMULATOR_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define EMULATOR_UNSEEN __attribute__((noinline))
#endif

namespace emulator {

inline constexpr unsigned kWarpLanes = 32;
inline constexpr unsigned kMaxThreads = 1024;
inline constexpr unsigned kMaxWarps = kMaxThreads / kWarpLanes;

struct Fiber;

// A place in the source, from default arguments of the device functions.
struct Where {
  const char* file = "";
  int line = 0;
  bool operator==(const Where& other) const;
};
std::string text(const Where& where);

struct Thread {
  uint3 index{};
  unsigned linear = 0;
  unsigned lane = 0;
  unsigned warp = 0;
  Fiber* fiber = nullptr;       // the stack it is suspended on
  const char* waits = nullptr;  // for what, and where
  Where where;
  unsigned waits_for = 0;  // lanes of the warp operation it waits in
};

// Lanes of one warp meeting in one operation. Groups of lanes may be at different operations, each with its own mask.
struct Meeting {
  const char* operation = nullptr;
  Where where;
  unsigned mask = 0;
  unsigned arrived = 0;
  std::array<void*, kWarpLanes> arguments{};
};

struct Warp {
  unsigned lanes = 0;  // that exist
  unsigned ready = 0;  // can run
  unsigned started = 0;
  unsigned exited = 0;
  unsigned priority = 0;  // random order: the highest runs first,
  unsigned rotation = 0;  // from this lane on,
  bool backward = false;  // upwards or downwards
  unsigned meeting = 0;   // which of the meetings are going on
  std::array<Meeting, kWarpLanes> meetings{};
};

// A kernel call as it waits in a stream.
struct Launch {
  std::string kernel;
  Where where;  // of the launch
  const void* function = nullptr;
  dim3 grid;
  dim3 block;
  std::size_t dynamic_shared = 0;
  void (*invoke)(void* arguments) = nullptr;
  void* arguments = nullptr;  // the std::tuple that invoke() applies the kernel to
  std::size_t argument_bytes = 0;
};

// State of the block that runs. There is one; the addresses are fixed so that device code reads it directly.
struct Block {
  const Launch* launch = nullptr;  // nullptr: host code runs
  uint3 index{};
  std::uint64_t serial = 0;  // differs for every block ever run
  unsigned threads = 0;
  unsigned warps = 0;
  unsigned exited = 0;
  unsigned barrier_arrived = 0;
  unsigned barrier_epoch = 0;  // barriers passed
  const char* barrier_name = nullptr;
  Where barrier_where;
  int barrier_votes = 0;  // __syncthreads_count and its kin
  int barrier_result = 0;
  std::array<Warp, kMaxWarps> warp{};
  std::array<Thread, kMaxThreads> thread{};
};
extern Block the_block;
extern Thread* current_thread;  // nullptr: host code runs

// Runs all blocks of the launch to the end.
void run_launch(const Launch& launch);

// Demands that device code is running; `name` is the device function called.
void require_device_code(const char* name, Where where);

// __syncthreads and its kin: waits for all threads of the block; returns the number of threads with predicate != 0.
int block_barrier(const char* name, int predicate, Where where);

// The one rendezvous behind all warp operations. The calling lane leaves a pointer to its arguments and waits; the last
// lane of `mask` runs `run` over all of them (nullptr where a lane is not in the mask). All lanes of the mask must come
// with the same mask and operation.
using WarpFunction = void (*)(void* const* arguments, unsigned mask);
void warp_operation(const char* name, unsigned mask, void* arguments, WarpFunction run, Where where);

// Lanes of the calling thread's warp that have not left the kernel.
unsigned active_lanes();

// Whether the address is on the stack of the running thread: its local memory.
bool on_own_stack(const void* pointer);

// "  kernel  k<3> (launched at a.cu:7), block (1,0,0), thread (33,0,0)\n", or nothing in host code.
std::string describe_position();

}  // namespace emulator
