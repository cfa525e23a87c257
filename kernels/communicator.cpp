#include "kernels/communicator.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace train_gpt {

Communicator::Piece Communicator::piece(std::int64_t count, int r, int pieces) {
  constexpr std::int64_t kAlignment = 64;
  const std::int64_t blocks = (count + kAlignment - 1) / kAlignment;
  const auto cut = [&](int i) { return std::min(count, blocks * i / pieces * kAlignment); };
  return {cut(r), cut(r + 1)};
}

void wait_until(const std::function<bool()>& poll) {
  constexpr int kYields = 50;
  for (int i = 0; i < kYields; ++i) {
    if (poll()) return;
    sched_yield();
  }
  // A two-hundredth of the time waited so far: what a nap oversleeps then stays small beside the wait, even where a
  // large message takes two or three turns of both sides.
  using Clock = std::chrono::steady_clock;
  constexpr Clock::duration kShortestNap = std::chrono::microseconds(20);
  constexpr Clock::duration kLongestNap = std::chrono::milliseconds(1);
  const Clock::time_point begin = Clock::now();
  while (!poll()) std::this_thread::sleep_for(std::clamp((Clock::now() - begin) / 200, kShortestNap, kLongestNap));
}

}  // namespace train_gpt
