// Ownership of a run's folder. Every process of a run holds a shared lock on DIR/run.json while it lives, whoever
// begins takes an exclusive one first: so a folder is free exactly when no process of an earlier run is left, however
// that ended. The system gives locks back when a process dies, and NFS carries them between hosts.
#pragma once

#include <cstdint>
#include <string>

namespace train_gpt {

// The content of DIR/run.json.
struct RunRecord {
  std::string run;           // 16 hex digits, for good: resumes in the same folder keep it
  std::string host;          // of rank 0, of the latest start
  std::int64_t process = 0;  // likewise
};

class RunLock {
 public:
  // For rank 0: makes run.json if there is none and takes it. Throws std::invalid_argument naming host and process of
  // the run that is alive there, or saying why the file cannot be made.
  static RunLock own(const std::string& directory);
  // For all other ranks, when rank 0 owns it.
  static RunLock join(const std::string& directory);

  // True if a process holds a lock there.
  static bool is_held(const std::string& directory);

  RunLock() = default;
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;
  ~RunLock();

  // True while DIR/run.json is the file that was taken.
  bool is_named() const;
  // The record that an earlier start left; an empty id: none, or one that cannot be read.
  const RunRecord& earlier() const { return earlier_; }
  // Replaces the record by one of this process.
  void write(const std::string& run);
  // Takes the file away again, if this made it and nothing was written.
  void forget();

 private:
  RunLock(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
  RunRecord earlier_;
  bool empty_ = true;
};

// Throws std::runtime_error where the system gives no random numbers.
std::string new_run_id();

}  // namespace train_gpt
