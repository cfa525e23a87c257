#include "kernels/cuda/side_stream.h"

#include "kernels/cuda/check.h"

namespace train_gpt::cuda {

bool happened(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaSuccess) return true;
  if (status != cudaErrorNotReady) CUDA_CHECK(status);
  (void)cudaGetLastError();  // "not ready" is no error to be found by a later check
  return false;
}

SideStream::SideStream(cudaStream_t compute) : compute_(compute) {
  int least = 0;
  int greatest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
  CUDA_CHECK(cudaEventCreateWithFlags(&computed_, cudaEventDisableTiming));
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

// Events return once their operation is complete and awaited: nobody will ask what they stand for.
cudaEvent_t SideStream::unused_event() {
  while (!closed_.empty() && closed_.front().awaited && happened(closed_.front().event)) {
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
  const Closed* closed = find(number);
  return closed == nullptr || happened(closed->event);
}

void SideStream::await(std::int64_t number) {
  Closed* closed = find(number);
  if (closed == nullptr) return;
  CUDA_CHECK(cudaStreamWaitEvent(compute_, closed->event, 0));
  closed->awaited = true;
}

RunAhead::RunAhead(cudaStream_t compute) : compute_(compute), events_(kDepth) {
  for (cudaEvent_t& event : events_) CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

RunAhead::~RunAhead() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

cudaEvent_t RunAhead::oldest() const {
  return recorded_ < kDepth ? nullptr : events_[static_cast<std::size_t>(recorded_ % kDepth)];
}

void RunAhead::record() {
  CUDA_CHECK(cudaEventRecord(events_[static_cast<std::size_t>(recorded_ % kDepth)], compute_));
  ++recorded_;
}

cudaEvent_t RunAhead::newest() const {
  return recorded_ == 0 ? nullptr : events_[static_cast<std::size_t>((recorded_ - 1) % kDepth)];
}

}  // namespace train_gpt::cuda
