#include "pipeline/train/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "pipeline/train/signals.h"

namespace train_gpt {
namespace {

constexpr double kLookEverySeconds = 0.25;
// Hooks are called every few milliseconds: a longer gap than this is one in which the process did not run.
constexpr double kLongestGapSeconds = 1;

std::string whole_seconds(double seconds) { return std::to_string(static_cast<int>(seconds)) + " s"; }

}  // namespace

Watchdog::Watchdog(StateFile& state, std::string directory, int rank, int ranks, double stall_timeout, bool launched,
                   std::function<std::string()> doing, std::function<double()> seconds)
    : state_(state),
      directory_(std::move(directory)),
      rank_(rank),
      stall_timeout_(stall_timeout),
      doing_(std::move(doing)),
      seconds_(std::move(seconds)),
      parent_(launched ? getppid() : 0),
      peers_(static_cast<std::size_t>(ranks)),
      last_look_(seconds_()) {}

void Watchdog::while_computing() {
  state_.beat();
  waits_ = false;
  look(/*waiting=*/false);
}

void Watchdog::while_waiting() {
  state_.beat();
  if (!waits_) waiting_since_ = awake_;
  waits_ = true;
  look(/*waiting=*/true);
}

void Watchdog::look(bool waiting) {
  if (const int signal = demand_to_end(); signal != 0) {
    throw std::runtime_error(std::string("ended by ") + signal_name(signal) + " while " + doing_());
  }
  const double now = seconds_();
  if (now - last_look_ < kLookEverySeconds) return;
  awake_ += std::min(now - last_look_, kLongestGapSeconds);
  last_look_ = now;
  state_.set_doing(doing_());
  if (parent_ != 0 && getppid() != parent_) {
    throw LauncherGone("the launcher (process " + std::to_string(parent_) + ") is gone; while " + doing_());
  }
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    if (r != rank_) look_at(r, waiting);
  }
  if (waiting && awake_ - waiting_since_ > kLongestWaitSeconds) {
    throw std::runtime_error("no progress for " + whole_seconds(kLongestWaitSeconds) + " while " + doing_());
  }
}

void Watchdog::look_at(int rank, bool waiting) {
  const auto state = read_state(directory_, rank);
  if (!state || state->finished) return;
  if (!state->failure.empty()) throw PeerFailure("while " + doing_() + ": rank " + std::to_string(rank) + " failed");
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (state->beat != peer.beat || state->stepping != peer.stepping) {
    peer = {.beat = state->beat, .stepping = state->stepping, .seen_at = awake_};
  }
  // One that reads or writes files shows no signs of life, and may take its time.
  if (!state->stepping) waiting_since_ = awake_;
  const double silent = awake_ - peer.seen_at;
  if (!waiting || silent <= (state->stepping ? stall_timeout_ : std::max(stall_timeout_, kLongestWaitSeconds))) return;
  throw std::runtime_error("while " + doing_() + ": rank " + std::to_string(rank) + " (process " +
                           std::to_string(state->process) + " on host " + state->host + ") shows no sign of life for " +
                           whole_seconds(silent) + "; it was " + state->doing);
}

void Watchdog::announce(const std::string& why) {
  state_.fail(why);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
}

}  // namespace train_gpt
