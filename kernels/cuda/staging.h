// Copies from pageable host memory that neither wait for the stream nor keep the host's buffer: pieces go through a
// ring of pinned memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace train_gpt::cuda {

class Staging {
 public:
  // `wait_for` returns once an event has happened.
  explicit Staging(std::function<void(cudaEvent_t)> wait_for);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // `host` may be reused when this returns. Waits only where the ring is full of copies still under way.
  void copy(void* out, const void* host, std::int64_t bytes, cudaStream_t stream);
  // Returns when the data is there.
  void fetch(void* host, const void* in, std::int64_t bytes, cudaStream_t stream);

 private:
  // A piece that no copy uses any more.
  std::int64_t claim();

  static constexpr std::int64_t kPieces = 16;
  static constexpr std::int64_t kPieceBytes = std::int64_t{256} << 10;

  std::function<void(cudaEvent_t)> wait_for_;
  char* memory_ = nullptr;
  std::vector<cudaEvent_t> copied_;  // per piece: its last copy
  std::int64_t next_ = 0;
};

}  // namespace train_gpt::cuda
