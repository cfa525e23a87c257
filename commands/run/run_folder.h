// A run's folder: chosen, locked while the run lives, and prepared for it.
//
//   --output DIR      that folder. One with a run in it is refused, unless --resume goes on with that run or
//   --overwrite
//                     gives it up
//   without           out/run-K, K counting up (whoever makes the folder has it); in a Slurm job out/job-<its id>
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
  // Takes away again what was made for a run that did not begin.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& run() const { return run_; }  // its id
  // The log goes on: the run is that whose files are there.
  bool continues() const { return continues_; }

  // For rank 0, when everything was checked: with --overwrite sets the run that was there aside (overwritten.h), of one
  // that goes on with `resumed` cuts off what its log and its checkpoints have beyond; removes what interrupted runs
  // left half written; records the new owner, turns out/latest here. Returns what people should know.
  std::vector<std::string> begin(const FoundCheckpoint& resumed);

  // For rank 0: somebody removed it, or run.json in it, which holds the lock. Another run may be there by now.
  bool is_lost() const { return !lock_.is_named(); }
  // Makes it, and run.json, anew where they are lost. Collective; throws as Session::together where another run has
  // taken the place.
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
  bool goes_back_ = false;  // an earlier checkpoint of this folder was named
  bool overwrites_ = false;
};

// A folder of this process's host for what ranks tell each other, of a command that leaves nothing: gone at its end.
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

// Names what a run left in `folder`, for messages; empty: no run.
std::string run_in(const std::string& folder);

// Cuts the events of steps from `step` on off a log, and whatever follows them: a run that goes on there takes them
// again.
void cut_log(const std::string& path, std::int64_t step);

}  // namespace train_gpt
