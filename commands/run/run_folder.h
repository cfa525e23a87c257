// A run's folder: chosen, locked while the run lives, and prepared for it.
//
//   --output DIR      that folder. If a run is in it, it is refused unless --resume goes on with that run
//                     or --overwrite gives it up
//   no --output       out/run-K with the least free K (the process that makes the folder owns it);
//                     in a Slurm job out/job-<its id>
//
// out/latest is a link to the folder of the run in out/ that began last.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "commands/cli/options.h"
#include "commands/run/checkpoints.h"
#include "commands/run/run_lock.h"
#include "commands/run/session.h"

namespace train_gpt {

class RunFolder {
 public:
  // Collective. Throws std::invalid_argument, on rank 0 (see Session::together).
  RunFolder(Session& session, const Options& options);
  // Removes what was made for a run that did not begin.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& run() const { return run_; }  // its id
  // True if the run whose files are there goes on, with its log.
  bool continues() const { return continues_; }

  // For rank 0, after all checks. With --overwrite sets the old run aside (overwritten.h); for a run that goes on with
  // `resumed` cuts off the log, and sets checkpoints aside, after that step. Removes what interrupted runs left half
  // written, records the new owner, and links out/latest here. Returns lines for people.
  std::vector<std::string> begin(const FoundCheckpoint& resumed);

  // For rank 0: true if the folder was removed, or run.json in it, which holds the lock. Another run may own it by now.
  bool is_lost() const { return !lock_.is_named(); }
  // Makes the folder and run.json anew where they are lost. Collective; throws as Session::together if another run has
  // taken the folder.
  void put_back(Session& session);

 private:
  void choose(const Options& options);

  std::string path_;
  std::string run_;
  RunLock lock_;
  bool first_ = false;
  bool made_ = false;  // the folder itself
  bool begun_ = false;
  bool continues_ = false;
  bool goes_back_ = false;  // --resume names an earlier checkpoint of this folder
  bool overwrites_ = false;
};

// A temporary folder of this host, through which the ranks of a command without output tell each other their states.
class ScratchFolder {
 public:
  explicit ScratchFolder(Session& session);  // collective
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool removes_ = false;
};

// The name of something that a run left in `folder`, for messages; empty: no run.
std::string run_in(const std::string& folder);

// Cuts a log off before the first event of `step` or a later one: a run that goes on from there takes that step and
// those after it again.
void cut_log(const std::string& path, std::int64_t step);

}  // namespace train_gpt
