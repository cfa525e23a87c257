// The cuda device under the emulator: buffers in its precision, and runs in every order of threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "settings.h"  // of the emulator
#include "test/kernels/device_fixture.h"

namespace train_gpt {

// A cuda device with a workspace for these sizes.
struct CudaFixture {
  CudaFixture(Precision precision, std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH)
      : device(make_cuda_device(precision)) {
    const std::int64_t bytes = device->workspace_bytes(B, T, C, NH, 128);
    workspace = device->allocate(bytes);
    device->use_workspace(workspace, bytes);
  }
  ~CudaFixture() { device->release(workspace); }
  CudaFixture(const CudaFixture&) = delete;
  CudaFixture& operator=(const CudaFixture&) = delete;

  std::unique_ptr<Device> device;
  void* workspace = nullptr;
};

// Memory in the device's precision. rounded() is what the device computes with.
class LowBuffer {
 public:
  LowBuffer(Device& device, const Floats& values) : device_(device), size_(static_cast<std::int64_t>(values.size())) {
    data_ = device.allocate(size_ * element_size(device.precision()));
    Buffer wide(device, values);
    device.from_float(data_, wide, size_);
    device.synchronize();
  }
  // n elements that nobody has written yet.
  LowBuffer(Device& device, std::int64_t n) : device_(device), size_(n) {
    data_ = device.allocate(n * element_size(device.precision()));
  }
  ~LowBuffer() { device_.release(data_); }
  LowBuffer(const LowBuffer&) = delete;
  LowBuffer& operator=(const LowBuffer&) = delete;

  operator void*() { return data_; }  // NOLINT: a buffer stands for its pointer
  Floats values() {
    Buffer wide(device_, Floats(static_cast<std::size_t>(size_)));
    device_.to_float(wide, data_, size_);
    return wide.values();
  }
  reference::Values rounded() { return doubles(values()); }

 private:
  Device& device_;
  std::int64_t size_ = 0;
  void* data_ = nullptr;
};

// The scalars that an optimizer step reads from device memory.
class Scalars {
 public:
  Scalars(Device& device, const AdamWScalars& values) : device_(device), data_(device.allocate(sizeof(AdamWScalars))) {
    device.to_device(data_, &values, sizeof values);
  }
  ~Scalars() { device_.release(data_); }
  Scalars(const Scalars&) = delete;
  Scalars& operator=(const Scalars&) = delete;
  operator const AdamWScalars*() const { return static_cast<const AdamWScalars*>(data_); }  // NOLINT

 private:
  Device& device_;
  void* data_;
};

class Tokens {
 public:
  Tokens(Device& device, const std::vector<std::int32_t>& values) : device_(device) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(std::int32_t));
    data_ = static_cast<std::int32_t*>(device.allocate(bytes));
    device.to_device(data_, values.data(), bytes);
  }
  ~Tokens() { device_.release(data_); }
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;
  operator const std::int32_t*() const { return data_; }  // NOLINT: a buffer stands for its pointer

 private:
  Device& device_;
  std::int32_t* data_ = nullptr;
};

// A result of an operation, by name.
struct Result {
  std::string name;
  Floats values;
};
using Results = std::vector<Result>;

// Runs `work` with threads and streams in several orders, expects equal bits, and returns the results.
template <typename Work>
Results in_all_orders(const Work& work) {
  struct Order {
    const char* name;
    emulator::ThreadOrder threads;
    emulator::StreamOrder streams;
  };
  constexpr Order kOrders[] = {{"forward", emulator::ThreadOrder::forward, emulator::StreamOrder::issue},
                               {"reverse", emulator::ThreadOrder::reverse, emulator::StreamOrder::latest},
                               {"random", emulator::ThreadOrder::random, emulator::StreamOrder::random}};
  Results first;
  const emulator::Settings before = emulator::settings();
  for (const Order& order : kOrders) {
    emulator::settings().thread_order = order.threads;
    emulator::settings().stream_order = order.streams;
    Results results = work();
    if (first.empty())
      first = std::move(results);
    else {
      for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_TRUE(same_bits(results[i].values, first[i].values)) << first[i].name << " in order " << order.name;
      }
    }
  }
  emulator::settings() = before;
  return first;
}

// Against a double reference on equally rounded inputs. fp32: within 1e-5 of the largest value. bf16: each element
// within one rounding of itself (2^-8 of its size), and 1e-5 of the largest for the sums; `extra`, of the largest, for
// what is rounded on the way.
inline void expect_precise(const Floats& actual, const reference::Values& expected, Precision precision,
                           const std::string& what, double extra = 0, double floor = 1e-6) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  if (precision == Precision::fp32) return expect_close(actual, expected, 1e-5, what, floor);
  double largest = floor;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double allowed = std::abs(expected[i]) / 256 + (1e-5 + extra) * largest;
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]) / allowed;
    if (error <= worst) continue;
    worst = error;  // NaN comes here, too
    at = i;
    if (std::isnan(error)) break;
  }
  EXPECT_LE(worst, 1) << what << ": element " << at << " is " << actual[at] << ", expected " << expected[at]
                      << ", largest " << largest;
}

inline std::string name_of(Precision precision) { return precision == Precision::fp32 ? "fp32" : "bf16"; }

}  // namespace train_gpt
