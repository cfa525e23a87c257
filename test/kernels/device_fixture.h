// Buffers and comparisons for tests of a device: values are made on the host, handed to the device, and read back.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/device.h"
#include "test/kernels/reference.h"

namespace train_gpt {

using Floats = std::vector<float>;

// Memory of a device that holds `values`.
class Buffer {
 public:
  Buffer(Device& device, const Floats& values) : device_(device), size_(static_cast<std::int64_t>(values.size())) {
    data_ = static_cast<float*>(device.allocate(size_ * 4));
    device.to_device(data_, values.data(), size_ * 4);
  }
  ~Buffer() { device_.release(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  operator float*() { return data_; }  // NOLINT: a buffer stands for its pointer
  Floats values() {
    Floats result(static_cast<std::size_t>(size_));
    device_.to_host(result.data(), data_, size_ * 4);
    return result;
  }

 private:
  Device& device_;
  std::int64_t size_ = 0;
  float* data_ = nullptr;
};

inline Floats random_floats(std::int64_t n, std::uint32_t seed, float deviation = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  Floats values(static_cast<std::size_t>(n));
  for (float& value : values) value = normal(generator);
  return values;
}

inline std::vector<std::int32_t> random_tokens(std::int64_t n, std::int64_t V, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(V));
  return tokens;
}

inline reference::Values doubles(const Floats& values) { return {values.begin(), values.end()}; }

// |actual - expected| <= tolerance * (largest |expected| + floor) everywhere; reports the worst element.
inline void expect_close(const Floats& actual, const reference::Values& expected, double tolerance,
                         const std::string& what, double floor = 1e-6) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = floor, worst = 0;
  for (const double value : expected) scale = std::max(scale, std::abs(value));
  std::size_t at = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(error <= worst)) {  // also true for NaN
      worst = error;
      at = i;
      if (std::isnan(error)) break;
    }
  }
  EXPECT_LE(worst, tolerance * scale) << what << ": element " << at << " is " << actual[at] << ", expected "
                                      << expected[at];
}

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A cpu device with a workspace for these sizes, and for matrix products of any size.
struct CpuFixture {
  explicit CpuFixture(int threads, std::int64_t B = 4, std::int64_t T = 128, std::int64_t C = 64, std::int64_t NH = 4,
                      std::int64_t Vp = 128)
      : device(make_cpu_device(threads)) {
    constexpr std::int64_t kLargeBatch = 256, kLargeHidden = 1536;  // beyond these no tile grows
    const std::int64_t bytes = device->workspace_bytes(std::max(B, kLargeBatch), T, std::max(C, kLargeHidden), NH, Vp);
    workspace = device->allocate(bytes);
    device->use_workspace(workspace, bytes);
  }
  ~CpuFixture() { device->release(workspace); }
  CpuFixture(const CpuFixture&) = delete;
  CpuFixture& operator=(const CpuFixture&) = delete;
  Device& operator*() const { return *device; }

  std::unique_ptr<Device> device;
  void* workspace = nullptr;
};

// Runs `work` on cpu devices of 1, 2, 3 and 4 threads and expects the same bits from each.
inline void expect_same_bits_for_any_threads(const std::string& what, std::int64_t T,
                                             const std::function<Floats(Device&)>& work) {
  const Floats expected = work(*CpuFixture(1, 4, T));
  for (int threads = 2; threads <= 4; ++threads) {
    EXPECT_TRUE(same_bits(work(*CpuFixture(threads, 4, T)), expected)) << what << " with " << threads << " threads";
  }
}

}  // namespace train_gpt
