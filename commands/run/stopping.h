// When a run stops before its last step and when it writes a checkpoint: what signals, --time-limit, the batch system,
// `train_gpt checkpoint DIR` and --checkpoint-every ask for. Each rank gives its votes with the report of a step and
// learns the sums, so all ranks agree without a message of their own.
#pragma once

#include <string>

#include "commands/cli/options.h"
#include "pipeline/train/signals.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

// Exit status of a run that was stopped and has left what it can go on from (EX_TEMPFAIL of sysexits.h: try again).
inline constexpr int kStopped = 75;

// The place in Votes that is not this class's: the rank is ready for the next stage of a save (background_saving.h).
inline constexpr std::size_t kSavingIsReady = kVotes - 1;

class Stopping {
 public:
  // begun: monotonic_seconds() when the program started. Throws std::invalid_argument if SLURM_JOB_END_TIME is no time.
  Stopping(const RunOptions& run, bool first, double begun);

  // At the end of a step.
  Votes votes() const;
  struct Verdict {
    std::string stop;  // why; empty: go on
    bool checkpoint = false;
    bool folder_is_gone = false;  // why it is to stop
  };
  // `earlier`: what it was stopped by already.
  Verdict read(const Votes& sums, const std::string& earlier) const;

  // What time limits and the pace of checkpoints go by.
  void step_took(double seconds) { step_seconds_ = seconds; }
  void checkpoint_begins();
  // `still`: seconds that training stood still for it, or would have without the copy; `whole`: until it was there.
  void checkpoint_took(double still, double whole);

 private:
  bool checkpoint_is_due() const;

  const RunOptions& run_;
  bool first_;
  double begun_;
  double job_ends_ = 0;  // on the clock of monotonic_seconds(); 0: no known end
  double step_seconds_ = 0;
  double still_seconds_ = 0;       // of the last checkpoint
  double checkpoint_seconds_ = 0;  // until it was there
  double last_checkpoint_;
};

// The file that asks the run in `folder` for a checkpoint.
std::string request_file(const std::string& folder);

}  // namespace train_gpt
