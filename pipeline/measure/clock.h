// Clocks of several hosts, brought together. Ranks of one host share CLOCK_MONOTONIC; other hosts count from another
// moment, and drift.
#pragma once

#include <functional>

#include "kernels/communicator.h"

namespace train_gpt {

struct ClockOffset {
  double ms = 0;        // this rank's clock less that of rank 0
  double error_ms = 0;  // an upper bound of the error; the largest of all ranks
};

// Some moment of every barrier is common to all ranks: it lies between entering and leaving on each rank's own clock.
// The offset lies in the intersection of what `rounds` barriers say; half its width is the error. `now_ms` reads the
// clock of this rank. Collective.
ClockOffset measure_clock_offset(Communicator& world, const std::function<double()>& now_ms, int rounds = 20);

}  // namespace train_gpt
