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
  constexpr std::chrono::microseconds kLongestNap{1000};
  std::chrono::microseconds nap{20};
  while (!poll()) {
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 3 / 2, kLongestNap);
  }
}

}  // namespace train_gpt
