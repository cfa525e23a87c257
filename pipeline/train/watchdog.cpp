#include "pipeline/train/watchdog.h"

#include <chrono>
#include <csignal>
#include <thread>

namespace train_gpt {
namespace {

volatile std::sig_atomic_t caught_signal = 0;
volatile std::sig_atomic_t stop_wished = 0;

void remember_signal(int signal) { caught_signal = signal; }
void remember_wish(int /*signal*/) { stop_wished = 1; }

constexpr double kLookEverySeconds = 0.25;

}  // namespace

Watchdog::Watchdog(StateFile& state, std::string directory, int rank, int ranks, std::function<std::string()> doing)
    : state_(state), directory_(std::move(directory)), rank_(rank), ranks_(ranks), doing_(std::move(doing)) {
  caught_signal = 0;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, remember_signal);
}

Watchdog::~Watchdog() {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_DFL);
}

void listen_for_wish_to_stop() { std::signal(SIGUSR1, remember_wish); }

bool wishes_to_stop() { return stop_wished != 0; }

void Watchdog::while_computing() {
  state_.beat();
  waiting_since_ = 0;
  look(/*waiting=*/false);
}

void Watchdog::while_waiting() {
  state_.beat();
  if (waiting_since_ == 0) waiting_since_ = monotonic_seconds();
  look(/*waiting=*/true);
}

void Watchdog::look(bool waiting) {
  if (caught_signal != 0) {
    throw std::runtime_error("ended by signal " + std::to_string(static_cast<int>(caught_signal)) + " while " +
                             doing_());
  }
  const double now = monotonic_seconds();
  if (now - last_look_ < kLookEverySeconds) return;
  last_look_ = now;
  state_.set_doing(doing_());
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    const auto peer = read_state(directory_, r);
    if (!peer || peer->host != host_name() || peer->finished) continue;
    if (!peer->failure.empty()) throw PeerFailure("while " + doing_() + ": rank " + std::to_string(r) + " failed");
    if (waiting && peer->stepping && now - waiting_since_ > kStalledSeconds && now - peer->beat > kStalledSeconds) {
      throw std::runtime_error("while " + doing_() + ": rank " + std::to_string(r) + " (process " +
                               std::to_string(peer->process) + ") shows no sign of life for " +
                               std::to_string(static_cast<int>(now - peer->beat)) + " s; it was " + peer->doing);
    }
  }
  if (waiting && now - waiting_since_ > kLongestWaitSeconds) {
    throw std::runtime_error("no progress for " + std::to_string(static_cast<int>(kLongestWaitSeconds)) + " s while " +
                             doing_());
  }
}

void Watchdog::announce(const std::string& why) {
  state_.fail(why);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
}

}  // namespace train_gpt
