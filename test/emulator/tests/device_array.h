// For the tests of the emulated libraries: device memory that is filled from and read back as floats.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "test/emulator/cublas_types.h"

namespace emulator::cublas {

class DeviceArray {
 public:
  DeviceArray(cudaDataType type, std::int64_t elements) : type_(type), elements_(elements) {
    EXPECT_EQ(cudaMalloc(&data_, bytes()), cudaSuccess);
  }
  DeviceArray(cudaDataType type, const std::vector<float>& values)
      : DeviceArray(type, static_cast<std::int64_t>(values.size())) {
    write(values);
  }
  DeviceArray(DeviceArray&& other) noexcept
      : type_(other.type_), elements_(other.elements_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() {
    if (data_ != nullptr) cudaFree(data_);
  }

  void write(const std::vector<float>& values) {
    std::vector<char> raw(bytes());
    from_floats(raw.data(), values.data(), type_, elements_);
    EXPECT_EQ(cudaMemcpy(data_, raw.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  std::vector<float> read() const {
    std::vector<char> raw(bytes());
    std::vector<float> values(static_cast<std::size_t>(elements_));
    EXPECT_EQ(cudaMemcpy(raw.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    to_floats(values.data(), raw.data(), type_, elements_);
    return values;
  }

  void* data() const { return data_; }
  cudaDataType type() const { return type_; }
  std::size_t bytes() const { return static_cast<std::size_t>(elements_) * element_bytes(type_); }

 private:
  cudaDataType type_;
  std::int64_t elements_;
  void* data_ = nullptr;
};

// Reproducible values in [-1, 1) that `type` can hold exactly.
inline std::vector<float> sample(std::int64_t n, std::uint32_t seed, cudaDataType type = CUDA_R_32F) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::uint32_t state = seed * 2654435761U + 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0F;
  }
  std::vector<char> raw(values.size() * element_bytes(type));
  from_floats(raw.data(), values.data(), type, n);
  to_floats(values.data(), raw.data(), type, n);
  return values;
}

}  // namespace emulator::cublas
