// Decides when a run stops before its last step and when it writes a checkpoint, as signals, --time-limit, the batch
// system, `train_gpt checkpoint DIR` and --checkpoint-every request. Each rank gives its votes with the report of a
// step and gets the sums, so all ranks agree without a further message.
#pragma once

#include <functional>
#include <string>

#include "commands/cli/options.h"
#include "pipeline/train/signals.h"
#include "pipeline/train/state_file.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

// Exit status of a run that was stopped and can be resumed (EX_TEMPFAIL of sysexits.h: try again).
inline constexpr int kStopped = 75;

// Votes that others set: the rank is ready for the next stage of a save (background_saving.h), and the run's folder is
// gone (RunFolder::is_lost).
inline constexpr std::size_t kSavingIsReady = kVotes - 1;
inline constexpr std::size_t kFolderIsLost = kVotes - 2;

class Stopping {
 public:
  // begun: seconds() when the program started; `seconds` is a clock that never goes back, which tests replace. Throws
  // std::invalid_argument if SLURM_JOB_END_TIME is no time.
  Stopping(const RunOptions& run, bool first, double begun, std::function<double()> seconds = monotonic_seconds);

  // At the end of a step.
  Votes votes() const;
  struct Verdict {
    std::string stop;  // why; empty: go on
    bool checkpoint = false;
    bool folder_is_gone = false;  // the reason to stop
    bool folder_is_lost = false;  // since the step before
  };
  // `earlier`: the reason of an earlier stop request.
  Verdict read(const Votes& sums, const std::string& earlier) const;

  // Durations for time limits and for the pace of checkpoints.
  void step_took(double seconds) { step_seconds_ = seconds; }
  void checkpoint_begins();
  // `still`: seconds that training waited for it, or would have without the copy; `whole`: until it was complete.
  void checkpoint_took(double still, double whole);

 private:
  bool checkpoint_is_due() const;

  const RunOptions& run_;
  std::function<double()> seconds_;
  bool first_;
  double begun_;
  double job_ends_ = 0;  // on that clock; 0: no known end
  double step_seconds_ = 0;
  double still_seconds_ = 0;       // of the last checkpoint
  double checkpoint_seconds_ = 0;  // until it was complete
  double last_checkpoint_;
};

// The file that asks the run in `folder` for a checkpoint.
std::string request_file(const std::string& folder);

}  // namespace train_gpt
