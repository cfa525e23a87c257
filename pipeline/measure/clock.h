// Compares the clocks of several hosts. Ranks of one host share CLOCK_MONOTONIC; clocks of other hosts begin at another
// moment, and drift.
#pragma once

#include <functional>

#include "kernels/communicator.h"

namespace train_gpt {

struct ClockOffset {
  double ms = 0;        // this rank's clock minus that of rank 0
  double error_ms = 0;  // an upper bound of the error; the largest of all ranks
};

// Every barrier has a moment common to all ranks, between entering and leaving it on each rank's own clock. The offset
// lies in the intersection of the intervals of `rounds` barriers; half its width is the error. `now_ms` reads the clock
// of this rank. Collective.
ClockOffset measure_clock_offset(Communicator& world, const std::function<double()>& now_ms, int rounds = 20);

}  // namespace train_gpt
