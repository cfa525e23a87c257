#include "kernels/cuda/marks.h"

#include <time.h>

#include <stdexcept>
#include <string>

#include "kernels/cuda/check.h"

namespace train_gpt::cuda {
namespace {

// More often is of no use: clocks drift by microseconds per second.
constexpr double kBaseInterval_ms = 100;

double now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

}  // namespace

// Makes all events at once, so that steps after the first make none.
Marks::Marks(cudaStream_t stream) : stream_(stream), marks_(kKept), bases_(kBases) {
  for (Mark& mark : marks_) CUDA_CHECK(cudaEventCreate(&mark.event));
  for (Base& base : bases_) CUDA_CHECK(cudaEventCreate(&base.event));
  renew_base();
}

Marks::~Marks() {
  for (const Mark& mark : marks_) cudaEventDestroy(mark.event);
  for (const Base& base : bases_) cudaEventDestroy(base.event);
}

std::int64_t Marks::record() {
  Mark& mark = marks_[static_cast<std::size_t>(next_mark_ % kKept)];
  CUDA_CHECK(cudaEventRecord(mark.event, stream_));
  mark.base = next_base_ - 1;
  return next_mark_++;
}

cudaEvent_t Marks::event(std::int64_t mark) const {
  const Mark& kept = marks_[static_cast<std::size_t>(mark % kKept)];
  if (mark < 0 || mark >= next_mark_ || mark < next_mark_ - kKept || kept.base < next_base_ - kBases) {
    throw std::logic_error("mark " + std::to_string(mark) + " of " + std::to_string(next_mark_) +
                           ": the cuda device keeps the last " + std::to_string(kKept));
  }
  return kept.event;
}

double Marks::time_ms(std::int64_t mark) const {
  const Base& base = bases_[static_cast<std::size_t>(marks_[static_cast<std::size_t>(mark % kKept)].base % kBases)];
  float elapsed = 0;
  CUDA_CHECK(cudaEventElapsedTime(&elapsed, base.event, event(mark)));
  return base.time_ms + static_cast<double>(elapsed);
}

void Marks::renew_base() {
  if (next_base_ > 0 &&
      now_ms() - bases_[static_cast<std::size_t>((next_base_ - 1) % kBases)].time_ms < kBaseInterval_ms) {
    return;
  }
  Base& base = bases_[static_cast<std::size_t>(next_base_ % kBases)];
  CUDA_CHECK(cudaEventRecord(base.event, stream_));
  cudaError_t status = cudaErrorNotReady;  // for microseconds: the stream is idle
  while ((status = cudaEventQuery(base.event)) == cudaErrorNotReady) (void)cudaGetLastError();
  CUDA_CHECK(status);
  base.time_ms = now_ms();
  ++next_base_;
}

}  // namespace train_gpt::cuda
