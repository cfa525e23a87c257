// A stream beside the compute stream, for messages and copies. Events order the two; the host waits for neither.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/cuda/compute_stream.h"

namespace train_gpt::cuda {

class SideStream {
 public:
  // Has the highest priority: a message that can leave should not queue behind the blocks of a large kernel.
  explicit SideStream(cudaStream_t compute);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  cudaStream_t stream() const { return stream_; }

  // Work enqueued here from now on starts after everything that is on the compute stream now.
  void follow_compute();
  // Numbers what was enqueued here up to now; numbers count from 1.
  std::int64_t close();
  // True if everything up to this number is complete.
  bool done(std::int64_t number);
  // Work enqueued on the compute stream from now on starts after everything up to this number.
  void await(std::int64_t number);

 private:
  // Enough for all numbers that are not settled yet: they span no more than the host may be ahead by (RunAhead), so
  // steps make no events.
  static constexpr std::size_t kEvents = 192;
  struct Closed {
    cudaEvent_t event = nullptr;
    bool settled = false;  // awaited by the compute stream, or known to the host to be done
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

// Keeps the host so near to the compute stream that the GPU's launch queue (1,024 entries) never fills: a launch into a
// full queue blocks the host inside the driver, where no watchdog sees that the GPU waits for a lost peer. Counted in
// operations, because an action of many layers launches more than the queue holds. Far enough ahead, too, that the GPU
// never runs dry.
class RunAhead {
 public:
  // The host is at most (kMarks + 1) * kOperations ahead.
  static constexpr std::int64_t kOperations = 32;
  static constexpr int kMarks = 4;
  static_assert((kMarks + 1) * kOperations * kMostLaunches < 1024);

  explicit RunAhead(cudaStream_t compute);
  ~RunAhead();
  RunAhead(const RunAhead&) = delete;
  RunAhead& operator=(const RunAhead&) = delete;

  // True once kOperations have been enqueued after the last mark; `enqueued` so far in all.
  bool is_due(std::int64_t enqueued) const { return enqueued - marked_at_ >= kOperations; }
  // Marks the compute stream, and returns the mark of kMarks marks ago, to be waited for before more is enqueued.
  cudaEvent_t mark(std::int64_t enqueued);
  // Marks the compute stream without counting: everything on it up to now, to be waited for.
  cudaEvent_t mark_all();

 private:
  cudaStream_t compute_;
  std::vector<cudaEvent_t> events_;
  cudaEvent_t all_ = nullptr;
  std::int64_t marks_ = 0;
  std::int64_t marked_at_ = 0;
};

// True if the event has happened; throws std::runtime_error on an error of the device.
bool happened(cudaEvent_t event);

}  // namespace train_gpt::cuda
