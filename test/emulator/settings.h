// How a run is ordered. Read once from the environment, so that a failure can be repeated without a new build; tests
// may also assign to settings() between launches.
#pragma once

#include <cstdint>
#include <string>

namespace emulator {

// Order in which the threads of a block, its warps, and the blocks of a grid run. `random`: warps have priorities that
// change at random moments, blocks are shuffled.
enum class ThreadOrder : std::uint8_t { forward, reverse, random };

// Which stream runs next. `issue`: the operation issued first; `latest`: the one issued last among those that can run.
enum class StreamOrder : std::uint8_t { issue, latest, random };

struct Settings {
  ThreadOrder thread_order = ThreadOrder::forward;  // EMULATOR_ORDER = forward | reverse | random
  StreamOrder stream_order = StreamOrder::issue;    // EMULATOR_STREAMS = issue | latest | random
  std::uint64_t seed = 1;                           // EMULATOR_SEED, for both kinds of random order
  double watchdog_seconds = 20;                     // EMULATOR_WATCHDOG: nothing moves for this long: report and end
  int device_count = 1;                             // EMULATOR_DEVICES
  bool bank_conflicts = false;                      // EMULATOR_BANKS=1 counts them (race build only), see counters.h
  bool cublaslt_epilogues = true;                   // EMULATOR_EPILOGUES=0: the heuristic finds only DEFAULT and BIAS
};
Settings& settings();

// "EMULATOR_ORDER=random EMULATOR_STREAMS=latest EMULATOR_SEED=7": what repeats this run.
std::string repeat_with();

}  // namespace emulator
