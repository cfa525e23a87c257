#include "kernels/cuda/side_stream.h"

#include "kernels/cuda/check.h"

namespace train_gpt::cuda {

bool happened(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaSuccess) return true;
  if (status != cudaErrorNotReady) CUDA_CHECK(status);
  (void)cudaGetLastError();  // "not ready" is not an error for a later check to find
  return false;
}

SideStream::SideStream(cudaStream_t compute) : compute_(compute), unused_(kEvents) {
  int least = 0;
  int greatest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
  CUDA_CHECK(cudaEventCreateWithFlags(&computed_, cudaEventDisableTiming));
  for (cudaEvent_t& event : unused_) CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

SideStream::~SideStream() {
  for (const Closed& closed : closed_) cudaEventDestroy(closed.event);
  for (cudaEvent_t event : unused_) cudaEventDestroy(event);
  cudaEventDestroy(computed_);
  cudaStreamDestroy(stream_);
}

void SideStream::follow_compute() {
  CUDA_CHECK(cudaEventRecord(computed_, compute_));
  CUDA_CHECK(cudaStreamWaitEvent(stream_, computed_, 0));
}

std::int64_t SideStream::close() {
  Closed closed{.event = unused_event()};
  CUDA_CHECK(cudaEventRecord(closed.event, stream_));
  closed_.push_back(closed);
  return first_ + static_cast<std::int64_t>(closed_.size()) - 1;
}

// An event is used again once its operation is complete and is known, or ordered, to be: nobody will ask for it any
// more.
cudaEvent_t SideStream::unused_event() {
  while (!closed_.empty() && closed_.front().settled && happened(closed_.front().event)) {
    unused_.push_back(closed_.front().event);
    closed_.pop_front();
    ++first_;
  }
  if (unused_.empty()) {
    cudaEvent_t event = nullptr;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
  }
  cudaEvent_t event = unused_.back();
  unused_.pop_back();
  return event;
}

SideStream::Closed* SideStream::find(std::int64_t number) {
  return number < first_ ? nullptr : &closed_.at(static_cast<std::size_t>(number - first_));
}

bool SideStream::done(std::int64_t number) {
  Closed* closed = find(number);
  if (closed == nullptr) return true;
  const bool done = happened(closed->event);
  closed->settled = closed->settled || done;
  return done;
}

void SideStream::await(std::int64_t number) {
  Closed* closed = find(number);
  if (closed == nullptr) return;
  CUDA_CHECK(cudaStreamWaitEvent(compute_, closed->event, 0));
  closed->settled = true;
}

RunAhead::RunAhead(cudaStream_t compute) : compute_(compute), events_(kMarks) {
  for (cudaEvent_t& event : events_) CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUDA_CHECK(cudaEventCreateWithFlags(&all_, cudaEventDisableTiming));
}

RunAhead::~RunAhead() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
  cudaEventDestroy(all_);
}

cudaEvent_t RunAhead::mark(std::int64_t enqueued) {
  marked_at_ = enqueued;
  CUDA_CHECK(cudaEventRecord(events_[static_cast<std::size_t>(marks_ % kMarks)], compute_));
  ++marks_;
  return events_[static_cast<std::size_t>(marks_ % kMarks)];  // never recorded: has happened
}

cudaEvent_t RunAhead::mark_all() {
  CUDA_CHECK(cudaEventRecord(all_, compute_));
  return all_;
}

}  // namespace train_gpt::cuda
