// Failing well: notices signals, ranks that fail and ranks that have stopped moving, from the hooks that run while this
// rank computes or waits. What it finds becomes an exception that names what this rank was doing.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "pipeline/train/state_file.h"

namespace train_gpt {

// Another rank gave up and has said why; this one only says where it was.
class PeerFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Watchdog {
 public:
  // Handles SIGTERM, SIGINT and SIGHUP while it lives. `doing` describes this rank.
  Watchdog(StateFile& state, std::string directory, int rank, int ranks, std::function<std::string()> doing);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From the progress hook: cheap. Throws std::runtime_error after a signal, PeerFailure after another rank's failure.
  void while_computing();
  // From the idle hook, likewise; also throws std::runtime_error when a rank of this host that is inside a step shows
  // no sign of life for kStalledSeconds, or when this wait has lasted kLongestWaitSeconds (ranks of other hosts).
  void while_waiting();

  // Marks this rank as failed and gives the others a moment to say where they were.
  void announce(const std::string& why);

  static constexpr double kStalledSeconds = 8;
  static constexpr double kLongestWaitSeconds = 600;

 private:
  void look(bool waiting);

  StateFile& state_;
  std::string directory_;
  int rank_;
  int ranks_;
  std::function<std::string()> doing_;
  double last_look_ = 0;
  double waiting_since_ = 0;
};

// From now on SIGUSR1 does not end this process, but is a wish to stop at the end of a step, however early it comes.
void listen_for_wish_to_stop();
bool wishes_to_stop();

}  // namespace train_gpt
