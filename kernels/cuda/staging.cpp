#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/check.h"

namespace train_gpt::cuda {

Staging::Staging() : copied_(kPieces) {
  CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&memory_), static_cast<std::size_t>(kPieces * kPieceBytes)));
  for (cudaEvent_t& event : copied_) CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

Staging::~Staging() {
  for (cudaEvent_t event : copied_) cudaEventDestroy(event);
  cudaFreeHost(memory_);
}

void Staging::copy(void* out, const void* host, std::int64_t bytes, cudaStream_t stream) {
  for (std::int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const auto size = static_cast<std::size_t>(std::min(kPieceBytes, bytes - begin));
    const std::int64_t piece = next_++ % kPieces;
    cudaEvent_t copied = copied_[static_cast<std::size_t>(piece)];
    if (const cudaError_t status = cudaEventQuery(copied); status != cudaSuccess) {
      if (status != cudaErrorNotReady) CUDA_CHECK(status);
      (void)cudaGetLastError();
      CUDA_CHECK(cudaEventSynchronize(copied));
    }
    char* pinned = memory_ + piece * kPieceBytes;
    std::memcpy(pinned, static_cast<const char*>(host) + begin, size);
    CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(out) + begin, pinned, size, cudaMemcpyHostToDevice, stream));
    CUDA_CHECK(cudaEventRecord(copied, stream));
  }
}

}  // namespace train_gpt::cuda
