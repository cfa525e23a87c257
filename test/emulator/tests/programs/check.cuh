// Shared by the example programs: they stop with a message when a call fails or a result is off.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(status));
  std::exit(1);
}
#define CHECK(call) check(call, #call, __FILE__, __LINE__)

// Device memory with the contents of a host vector.
template <class T>
struct DeviceArray {
  explicit DeviceArray(std::size_t n) : size(n) { CHECK(cudaMalloc(&data, n * sizeof(T))); }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    CHECK(cudaMemcpy(data, host.data(), size * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  std::vector<T> host() const {
    std::vector<T> result(size);
    CHECK(cudaMemcpy(result.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost));
    return result;
  }
  T* data = nullptr;
  std::size_t size;
};

// Deterministic values in [-1, 1).
inline std::vector<float> random_values(std::size_t n, unsigned seed) {
  std::vector<float> values(n);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
  }
  return values;
}

inline void demand_close(double got, double expected, double tolerance, const char* what, std::size_t index) {
  if (std::fabs(got - expected) <= tolerance * (1 + std::fabs(expected))) return;
  std::fprintf(stderr, "wrong result: %s[%zu] is %.9g, expected %.9g\n", what, index, got, expected);
  std::exit(1);
}
