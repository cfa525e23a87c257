// Failing well: the hooks that run while this rank computes or waits notice demands to end, ranks that fail, ranks that
// have stopped moving, and a launcher that is gone. What they find becomes an exception that says what this rank was
// doing.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "pipeline/train/state_file.h"

namespace train_gpt {

// Another rank gave up and has said why; this one says only where it was.
class PeerFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The launcher is gone: nobody is left to end the ranks of this host together.
class LauncherGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Watchdog {
 public:
  // `doing` describes this rank. `stall_timeout`: seconds. `launched`: by mpirun or the like, whose process on this
  // host is the parent of this one. `seconds`: a clock.
  Watchdog(StateFile& state, std::string directory, int rank, int ranks, double stall_timeout, bool launched,
           std::function<std::string()> doing, std::function<double()> seconds = monotonic_seconds);

  // To be called from the progress hook: cheap. Throws std::runtime_error after a demand to end, PeerFailure after
  // another rank's failure, LauncherGone.
  void while_computing();
  // To be called from the idle hook. Also throws std::runtime_error when a rank inside a step shows no sign of life for
  // the stall timeout, when one that reads or writes files shows none for kLongestWaitSeconds, or when this wait has
  // lasted that long with all ranks alive. Time is that of a clock of this rank which stands still while it is
  // suspended: a job that is suspended as a whole has missed nothing.
  void while_waiting();

  // Marks this rank as failed and gives the others a moment to say where they were.
  void announce(const std::string& why);

  static constexpr double kLongestWaitSeconds = 600;

 private:
  struct Peer {
    double beat = 0;  // the last sign of life that was seen
    bool stepping = false;
    double seen_at = 0;  // when, on awake_
  };
  void look(bool waiting);
  void look_at(int rank, bool waiting);

  StateFile& state_;
  std::string directory_;
  int rank_;
  double stall_timeout_;
  std::function<std::string()> doing_;
  std::function<double()> seconds_;
  int parent_;  // process id; 0: not watched
  std::vector<Peer> peers_;
  double last_look_ = 0;
  double awake_ = 0;  // seconds of the clock that stands still
  bool waits_ = false;
  double waiting_since_ = 0;  // on awake_
};

}  // namespace train_gpt
