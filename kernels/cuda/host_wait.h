// How the host waits for a GPU: by asking. Short naps at first and never long ones, because a host that wakes late lets
// its GPU run dry; a core per GPU is the rule, but ranks may outnumber cores.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace train_gpt::cuda {

// Calls poll() until it returns true.
template <typename Poll>
void poll_until(const Poll& poll) {
  std::chrono::microseconds nap(10);
  for (int round = 0; !poll(); ++round) {
    if (round < 50) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, std::chrono::microseconds(100));
    }
  }
}

}  // namespace train_gpt::cuda
