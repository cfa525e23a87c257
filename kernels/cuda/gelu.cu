// GELU, tanh form (Hendrycks and Gimpel 2016), and its derivative as kernels of their own: for the shapes that
// cuBLASLt's epilogues do not take (matmul.cpp).
//
//   forward    y = x sigmoid(2u),  u = sqrt(2/pi) (x + 0.044715 x^3)      2 e n bytes, ~10 n FLOPs
//   backward   dx = dy (s + x s (1 - s) 2 du/dx),  s = sigmoid(2u)        3 e n bytes, ~18 n FLOPs
//
// Bound by memory: N = 8192, 4 C = 3072, bf16: forward 101 MB: 30 us on an H100 (3.35 TB/s), 21 us on an H200 (4.8
// TB/s), 50 us on an A100 (2.0 TB/s); backward 151 MB: 45, 31 and 75 us.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/operation_parts.h"

namespace train_gpt::cuda {
namespace {

constexpr float kGelu1 = 1.59576912F;    // 2 sqrt(2/pi)
constexpr float kGelu3 = 0.0713548162F;  // 2 sqrt(2/pi) 0.044715

// Unlike x/2 (1 + tanh u) it does not cancel for negative x.
__device__ float gelu(float x) { return x / (1.0F + expf(-x * fmaf(kGelu3, x * x, kGelu1))); }

// Beyond +-20 it is 1 or 0 to every digit.
__device__ float gelu_derivative(float x) {
  x = fminf(fmaxf(x, -20.0F), 20.0F);
  const float x2 = x * x;
  const float e = expf(fminf(-x * fmaf(kGelu3, x2, kGelu1), 87.0F));
  const float s = 1.0F / (1.0F + e);
  return s * fmaf(x * fmaf(3.0F * kGelu3, x2, kGelu1), e * s, 1.0F);
}

template <typename Float>
struct Gelu {
  static constexpr int kWidth = kWide<Float>;

  Float* out;
  const Float* in;

  __device__ void operator()(std::int64_t i, int count) const {
    float x[kWidth];
    load<kWidth>(x, in + i, count);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) x[k] = gelu(x[k]);
    store<kWidth>(out + i, x, count);
  }
};

template <typename Float>
struct GeluGradient {
  static constexpr int kWidth = kWide<Float>;

  Float* dpre;
  const Float* dout;
  const Float* pre;

  __device__ void operator()(std::int64_t i, int count) const {
    float dy[kWidth], x[kWidth];
    load<kWidth>(dy, dout + i, count);
    load<kWidth>(x, pre + i, count);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) dy[k] *= gelu_derivative(x[k]);
    store<kWidth>(dpre + i, dy, count);
  }
};

}  // namespace

template <typename Float>
void gelu_forward(Float* out, const Float* in, std::int64_t n, cudaStream_t stream) {
  elementwise(Gelu<Float>{out, in}, n, stream);
}

template <typename Float>
void gelu_backward(Float* dpre, const Float* dout, const Float* pre, std::int64_t n, cudaStream_t stream) {
  elementwise(GeluGradient<Float>{dpre, dout, pre}, n, stream);
}

template void gelu_forward<float>(float*, const float*, std::int64_t, cudaStream_t);
template void gelu_forward<bf16>(bf16*, const bf16*, std::int64_t, cudaStream_t);
template void gelu_backward<float>(float*, const float*, const float*, std::int64_t, cudaStream_t);
template void gelu_backward<bf16>(bf16*, const bf16*, const bf16*, std::int64_t, cudaStream_t);

}  // namespace train_gpt::cuda
