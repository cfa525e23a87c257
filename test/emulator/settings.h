// How a run is ordered. Read once from the environment, so that a failure can be repeated without a new build; tests
// may also assign to settings() between launches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

// Order in which the threads of a block, its warps, and the blocks of a grid run. `random`: warps have priorities that
// change at random moments, blocks are shuffled.
enum class ThreadOrder : std::uint8_t { forward, reverse, random };

// Which stream runs next. `issue`: the operation issued first; `latest`: the one issued last among those that can run.
enum class StreamOrder : std::uint8_t { issue, latest, random };

// EMULATOR_NCCL_FAULT = break:1:ncclSend:20 (or stop:.., kill:..): what happens when rank 1 asks for its 20th ncclSend.
// `stop` and `kill` send the process SIGSTOP or SIGKILL; `break` takes the peers of this communicator away: nothing on
// it ends any more, and ncclCommGetAsyncError says ncclRemoteError.
struct NcclFault {
  enum class Kind : std::uint8_t { none, broken, stop, kill };
  Kind kind = Kind::none;
  int rank = 0;
  std::string call;
  int count = 0;
};

struct Settings {
  ThreadOrder thread_order = ThreadOrder::forward;  // EMULATOR_ORDER = forward | reverse | random
  StreamOrder stream_order = StreamOrder::issue;    // EMULATOR_STREAMS = issue | latest | random
  std::uint64_t seed = 1;                           // EMULATOR_SEED, for both kinds of random order
  double watchdog_seconds = 20;                     // EMULATOR_WATCHDOG: nothing moves for this long: report and end
  int device_count = 1;                             // EMULATOR_DEVICES: of the machine
  std::string card;                                 // EMULATOR_CARD: name of the devices; empty: an H100's
  double memory_gib = 4;                            // EMULATOR_MEMORY: of a device. Every byte is filled, so few
  // For tests of index arithmetic: an allocation of more than a GiB is a piece of so many bytes (a multiple of 4096),
  // mapped again and again; 0: all memory is real. And of every grid only so many last blocks run; 0: all.
  std::int64_t repeated_memory = 0;
  std::uint64_t last_blocks = 0;
  bool old_driver = false;         // EMULATOR_OLD_DRIVER=1: the driver is too old for this CUDA
  bool exclusive = false;          // EMULATOR_EXCLUSIVE=1: a device admits one process (compute mode)
  NcclFault nccl_fault;            // EMULATOR_NCCL_FAULT
  bool bank_conflicts = false;     // EMULATOR_BANKS=1 counts them (race build only), see counters.h
  bool cublaslt_epilogues = true;  // EMULATOR_EPILOGUES=0: the heuristic finds only DEFAULT and BIAS
};
Settings& settings();

// Indices of the machine's devices that CUDA_VISIBLE_DEVICES shows (all, where it is unset), in its order; as in CUDA
// an entry that is none ends the list.
std::vector<int> visible_devices();

// "EMULATOR_ORDER=random EMULATOR_STREAMS=latest EMULATOR_SEED=7": what repeats this run.
std::string repeat_with();

}  // namespace emulator
