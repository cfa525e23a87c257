// Ends the process when connecting to a peer takes too long: NCCL blocks the host in there, where no watchdog looks.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace train_gpt::cuda {

class SetupDeadline {
 public:
  // `doing`: "rank 3: connecting channel 2 (rank 3 to rank 4)".
  explicit SetupDeadline(std::string doing);
  ~SetupDeadline();
  SetupDeadline(const SetupDeadline&) = delete;
  SetupDeadline& operator=(const SetupDeadline&) = delete;

  // Per connection. Large jobs take seconds for one.
  static constexpr int kSeconds = 60;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace train_gpt::cuda
