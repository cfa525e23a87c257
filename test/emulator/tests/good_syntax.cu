// CUDA syntax in the shapes that the source rewriter must read. Formatting is part of the test.
// clang-format off
#include <cuda_runtime.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "good.h"

namespace {
namespace inner {
template <int N, class T = float> __global__ void put(T* out, std::pair<int, int> range, T value) {
  if (threadIdx.x < static_cast<unsigned>(N) && range.first < range.second) out[threadIdx.x] = value;
}
}  // namespace inner

#define LAUNCH(kernel, ...) kernel<<<1, 32>>>(__VA_ARGS__)
#define TEXT "a <<<string>>> with __shared__ int x;"

template <int M>
__global__ void shapes(float* out) {
  __shared__ float plain, row[M], table[M][2 * M + 1];  // __shared__ in a comment
  __shared__ alignas(32) float aligned_after[8];
  alignas(64) __shared__ float aligned_before[8];
  __shared__ __align__(16) struct Pair { float a, b; } pairs[3];
  __shared__
      std::pair<float, float>
          over_lines[2];
  extern __shared__ __align__(16) unsigned char bytes[];
  float* floats = reinterpret_cast<float*>(bytes);
  if (threadIdx.x == 0) {
    plain = 1; row[M - 1] = 2; table[M - 1][2 * M] = 3; aligned_after[7] = 4; aligned_before[7] = 5;
    pairs[2].b = 6; over_lines[1] = {7, 8}; floats[3] = 9;
    const bool aligned = reinterpret_cast<std::size_t>(aligned_after) % 32 == 0 &&
                         reinterpret_cast<std::size_t>(aligned_before) % 64 == 0;
    out[0] = aligned ? plain + row[M - 1] + table[M - 1][2 * M] + aligned_after[7] + aligned_before[7] + pairs[2].b +
                           over_lines[1].first + over_lines[1].second + floats[3] : -1;
    out[1] = sizeof(table) / sizeof(float);
  }
}
}  // namespace

static_assert(__LINE__ == 45, "lines stay where they are");

void syntax() {
  float* out = nullptr;
  cudaMalloc(&out, 32 * sizeof(float));
  cudaStream_t stream = nullptr;
  cudaStreamCreate(&stream);
  const std::string text = TEXT; const int thousand = 1'000; const char quote = '"', tick = '\'';
  const char* raw = R"x(raw <<<1, 2>>> "text" __shared__)x";
  DEMAND(text.size() == 37 && thousand == 1000 && quote == '"' && tick == 39 && std::strlen(raw) == 32);
  const auto first = [&](int i) { float value[32]; cudaStreamSynchronize(stream);
                                  cudaMemcpy(value, out, sizeof value, cudaMemcpyDeviceToHost); return value[i]; };
  inner::put<8><<<dim3(1, 1), 32>>>(out, {0, 1}, 5.0f);
  DEMAND(first(7) == 5);
  inner::put<8, float> <<< (1 << 0), [] { return 32; }(), sizeof(float) * 0, stream >>>
      (out, std::pair<int, int>(0, 1 << 3), 6.0f);
  DEMAND(first(7) == 6);
  static_assert(__LINE__ == 62, "also behind a launch over two lines");
  (inner::put<(3 > 2 ? 8 : 4)><<<1, 32>>>(out, {0, 1}, 7.0f)), DEMAND(first(7) == 7);
  LAUNCH(inner::put<8>, out, std::pair<int, int>(0, 1), 8.0f);
  DEMAND(first(7) == 8);
  shapes<5><<<1, 32, 16>>>(out);
  DEMAND(first(0) == 45 && first(1) == 55);
  const cudaLaunchConfig_t config{dim3(1), dim3(32), 0, stream, nullptr, 0};
  DEMAND(cudaLaunchKernelEx(&config, inner::put<8, float>, out, std::pair<int, int>(0, 1), 9) == cudaSuccess);
  DEMAND(first(7) == 9);
  cudaStreamDestroy(stream);
  cudaFree(out);
}
