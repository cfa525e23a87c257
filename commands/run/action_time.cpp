#include "commands/run/action_time.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/durations.h"

namespace train_gpt {

std::vector<double> action_durations(const Schedule& schedule, const StageCosts& costs, int rank) {
  const DurationTable table(schedule, costs, nullptr);
  const std::size_t count = schedule.actions(rank).size();
  std::vector<double> durations;
  for (std::size_t i = 0; i < count; ++i) durations.push_back(table(rank, i));
  for (std::size_t i = 0; i + 1 < count; ++i) {
    if (!table.runs_as_pair(rank, i)) continue;
    const double apart = durations[i] + durations[i + 1];
    const double factor = apart > 0 ? table.pair(rank, i) / apart : 0;
    durations[i] *= factor;
    durations[i + 1] *= factor;
  }
  return durations;
}

ActionDelays::ActionDelays(const DelaySpec& spec, int rank)
    : spec_(spec), here_(spec.rank < 0 || spec.rank == rank), random_(spec.seed + static_cast<std::uint64_t>(rank)) {}

double ActionDelays::next() {
  return any() ? spec_.step + std::uniform_real_distribution<>(0, spec_.action)(random_) : 0;
}

namespace {

// Naps of this thread end when they are asked to, and not up to 50 us later, which lets Linux wake several at once.
void wake_on_time() {
  thread_local const int status = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  (void)status;  // without it naps are as they were
}

}  // namespace

void spend(double ms, const std::function<void()>& progress) {
  using Clock = std::chrono::steady_clock;
  wake_on_time();
  // A large message takes several turns of sender and receiver, which sleep in between. A nap ends up to 30 us late:
  // the last stretch is waited out awake, and no longer than that, since ranks that outnumber cores, whose actions end
  // at one time, keep each other from ending.
  constexpr std::chrono::microseconds kSlice{150}, kAwake{40};
  constexpr int kCallsPerSlice = 4;
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
  for (auto now = Clock::now(); now < end; now = Clock::now()) {
    if (end - now > kAwake) std::this_thread::sleep_until(std::min<Clock::time_point>(end - kAwake, now + kSlice));
    for (int i = 0; i < kCallsPerSlice; ++i) progress();
  }
}

}  // namespace train_gpt
