// A stream beside the compute stream, for messages and copies. Events order the two; the host waits for neither.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <deque>
#include <vector>

namespace train_gpt::cuda {

class SideStream {
 public:
  // Of the greatest priority: a message that can leave should not queue behind the blocks of a large kernel.
  explicit SideStream(cudaStream_t compute);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  cudaStream_t stream() const { return stream_; }

  // What is enqueued here next starts after everything that is on the compute stream now.
  void follow_compute();
  // Numbers what was enqueued here up to now; numbers count from 1.
  std::int64_t close();
  // True if everything up to this number is complete.
  bool done(std::int64_t number);
  // What is enqueued on the compute stream next starts after everything up to this number.
  void await(std::int64_t number);

 private:
  struct Closed {
    cudaEvent_t event = nullptr;
    bool awaited = false;
  };

  cudaEvent_t unused_event();
  Closed* find(std::int64_t number);

  cudaStream_t compute_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t computed_ = nullptr;
  std::deque<Closed> closed_;  // numbers first_, first_ + 1, ..
  std::int64_t first_ = 1;
  std::vector<cudaEvent_t> unused_;
};

// Keeps the host at most kDepth awaits ahead of the compute stream. Far enough that the GPU never runs dry; near enough
// that a rank whose GPU waits for a lost peer notices it on the host, where the watchdog is, instead of filling the
// launch queue until a launch blocks for ever.
class RunAhead {
 public:
  static constexpr int kDepth = 8;

  explicit RunAhead(cudaStream_t compute);
  ~RunAhead();
  RunAhead(const RunAhead&) = delete;
  RunAhead& operator=(const RunAhead&) = delete;

  // The event behind the await that was made kDepth awaits ago (null: there was none), to be waited for before
  // record().
  cudaEvent_t oldest() const;
  // Marks one more await on the compute stream.
  void record();
  // The event behind the last await; null: there was none.
  cudaEvent_t newest() const;

 private:
  cudaStream_t compute_;
  std::vector<cudaEvent_t> events_;
  std::int64_t recorded_ = 0;
};

// True if the event has happened; throws std::runtime_error on an error of the device.
bool happened(cudaEvent_t event);

}  // namespace train_gpt::cuda
