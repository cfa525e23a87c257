// Ownership of a run's folder. Every process of a run holds a shared lock on DIR/run.json while it lives, and a new run
// first takes an exclusive one: so a folder is free exactly when no process of an earlier run is left, however that run
// ended. The system releases locks when a process dies, and NFS carries them between hosts.
#pragma once

#include <cstdint>
#include <string>

namespace train_gpt {

// The content of DIR/run.json.
struct RunRecord {
  std::string run;           // 16 hex digits, kept when the run is resumed in the same folder
  std::string host;          // of rank 0, at the latest start
  std::int64_t process = 0;  // id, of the same
};

class RunLock {
 public:
  // For rank 0: makes run.json if there is none and locks it. Throws std::invalid_argument naming host and process of
  // the run that is alive there, or the reason why the file cannot be made.
  static RunLock own(const std::string& directory);
  // For all other ranks, after rank 0 owns it.
  static RunLock join(const std::string& directory);

  // True if a process holds a lock there.
  static bool is_held(const std::string& directory);

  RunLock() = default;
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;
  ~RunLock();

  // True while DIR/run.json is the file that was locked.
  bool is_named() const;
  // The record of an earlier start; empty id: none, or it cannot be read.
  const RunRecord& earlier() const { return earlier_; }
  // Replaces the record by one of this process.
  void write(const std::string& run);
  // Removes the file if this object made it and nothing was written.
  void forget();

 private:
  RunLock(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
  RunRecord earlier_;
  bool empty_ = true;
};

// Throws std::runtime_error if the system gives no random numbers.
std::string new_run_id();

}  // namespace train_gpt
