// Marks in a stream and their time on the host's clock. Events count in the GPU's time; a base ties it to
// CLOCK_MONOTONIC and is renewed whenever the stream is found idle, because the clocks drift and a float of
// milliseconds loses digits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace train_gpt::cuda {

class Marks {
 public:
  explicit Marks(cudaStream_t stream);
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // time_ms may be asked of the last kKept marks.
  static constexpr std::int64_t kKept = 32768;
  std::int64_t record();
  // The event of a mark, to be waited for before time_ms. Throws std::logic_error for a mark that is no longer kept.
  cudaEvent_t event(std::int64_t mark) const;
  double time_ms(std::int64_t mark) const;
  // The stream is idle: later marks count from now.
  void renew_base();

 private:
  struct Base {
    cudaEvent_t event = nullptr;
    double time_ms = 0;
  };
  struct Mark {
    cudaEvent_t event = nullptr;
    std::int64_t base = 0;
  };
  static constexpr std::int64_t kBases = 256;

  cudaStream_t stream_;
  std::vector<Mark> marks_;  // rings
  std::vector<Base> bases_;
  std::int64_t next_mark_ = 0, next_base_ = 0;
};

}  // namespace train_gpt::cuda
