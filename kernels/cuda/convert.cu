// Conversions between fp32 and bf16 (to nearest, ties to even), and sums of buffers. Bound by memory: 6 n bytes for a
// conversion, 12 n for a sum.
#include "kernels/cuda/check.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/packs.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;

template <typename Out, typename In>
struct Conversion {
  template <int kWidth>
  __device__ static void apply(Out* out, const In* in) {
    float x[kWidth];
    load<kWidth>(x, in);
    store<kWidth>(out, x);
  }
};

struct Sum {
  template <int kWidth>
  __device__ static void apply(float* out, const float* in) {
    float x[kWidth], y[kWidth];
    load<kWidth>(x, out);
    load<kWidth>(y, in);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) x[k] += y[k];
    store<kWidth>(out, x);
  }
};

// Four elements per thread; the last thread takes what is left one by one.
template <typename Operation, typename Out, typename In>
__global__ void __launch_bounds__(kThreads) elementwise_kernel(Out* out, const In* in, std::int64_t n) {
  const std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPack;
  if (i + kPack <= n) {
    Operation::template apply<kPack>(out + i, in + i);
  } else {
    for (std::int64_t k = i; k < n; ++k) Operation::template apply<1>(out + k, in + k);
  }
}

template <typename Operation, typename Out, typename In>
void elementwise(Out* out, const In* in, std::int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  elementwise_kernel<Operation, Out, In><<<blocks_for(n, kThreads * kPack), kThreads, 0, stream>>>(out, in, n);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void to_bf16(bf16* out, const float* in, std::int64_t n, cudaStream_t stream) {
  elementwise<Conversion<bf16, float>>(out, in, n, stream);
}
void to_fp32(float* out, const bf16* in, std::int64_t n, cudaStream_t stream) {
  elementwise<Conversion<float, bf16>>(out, in, n, stream);
}
void add(float* out, const float* in, std::int64_t n, cudaStream_t stream) { elementwise<Sum>(out, in, n, stream); }

}  // namespace train_gpt::cuda
