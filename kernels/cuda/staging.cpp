#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/check.h"

namespace train_gpt::cuda {

Staging::Staging(std::function<void(cudaEvent_t)> wait_for) : wait_for_(std::move(wait_for)), copied_(kPieces) {
  CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&memory_), static_cast<std::size_t>(kPieces * kPieceBytes)));
  for (cudaEvent_t& event : copied_) CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

Staging::~Staging() {
  for (cudaEvent_t event : copied_) cudaEventDestroy(event);
  cudaFreeHost(memory_);
}

std::int64_t Staging::claim() {
  const std::int64_t piece = next_++ % kPieces;
  wait_for_(copied_[static_cast<std::size_t>(piece)]);
  return piece;
}

void Staging::copy(void* out, const void* host, std::int64_t bytes, cudaStream_t stream) {
  for (std::int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const auto size = static_cast<std::size_t>(std::min(kPieceBytes, bytes - begin));
    const std::int64_t piece = claim();
    char* pinned = memory_ + piece * kPieceBytes;
    std::memcpy(pinned, static_cast<const char*>(host) + begin, size);
    CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(out) + begin, pinned, size, cudaMemcpyHostToDevice, stream));
    CUDA_CHECK(cudaEventRecord(copied_[static_cast<std::size_t>(piece)], stream));
  }
}

void Staging::fetch(void* host, const void* in, std::int64_t bytes, cudaStream_t stream) {
  for (std::int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const auto size = static_cast<std::size_t>(std::min(kPieceBytes, bytes - begin));
    const std::int64_t piece = claim();
    cudaEvent_t copied = copied_[static_cast<std::size_t>(piece)];
    char* pinned = memory_ + piece * kPieceBytes;
    CUDA_CHECK(cudaMemcpyAsync(pinned, static_cast<const char*>(in) + begin, size, cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaEventRecord(copied, stream));
    wait_for_(copied);
    std::memcpy(static_cast<char*>(host) + begin, pinned, size);
  }
}

}  // namespace train_gpt::cuda
