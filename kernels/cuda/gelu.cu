// GELU, tanh form (Hendrycks and Gimpel 2016), and its derivative as kernels of their own: for the shapes that
// cuBLASLt's epilogues do not take (matmul.cu). Bound by memory: 2 e n and 3 e n bytes.
#include "kernels/cuda/check.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/packs.cuh"

namespace train_gpt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kGelu1 = 1.59576912F;    // 2 sqrt(2/pi)
constexpr float kGelu3 = 0.0713548162F;  // 2 sqrt(2/pi) 0.044715

// x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3): unlike x/2 (1 + tanh u) it does not cancel for negative x.
__device__ float gelu(float x) { return x / (1.0F + expf(-x * fmaf(kGelu3, x * x, kGelu1))); }

// s + x s (1 - s) d(2u)/dx with s = sigmoid(2u). Beyond +-20 it is 1 or 0 to every digit.
__device__ float gelu_derivative(float x) {
  x = fminf(fmaxf(x, -20.0F), 20.0F);
  const float x2 = x * x;
  const float e = expf(fminf(-x * fmaf(kGelu3, x2, kGelu1), 87.0F));
  const float s = 1.0F / (1.0F + e);
  return s * fmaf(x * fmaf(3.0F * kGelu3, x2, kGelu1), e * s, 1.0F);
}

template <typename Float>
__global__ void __launch_bounds__(kThreads) gelu_forward_kernel(Float* out, const Float* in, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) out[i] = rounded<Float>(gelu(as_float(in[i])));
}

template <typename Float>
__global__ void __launch_bounds__(kThreads)
    gelu_backward_kernel(Float* dpre, const Float* dout, const Float* pre, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) dpre[i] = rounded<Float>(as_float(dout[i]) * gelu_derivative(as_float(pre[i])));
}

}  // namespace

template <typename Float>
void gelu_forward(Float* out, const Float* in, std::int64_t n, cudaStream_t stream) {
  gelu_forward_kernel<Float><<<blocks_for(n, kThreads), kThreads, 0, stream>>>(out, in, n);
  CUDA_CHECK(cudaGetLastError());
}

template <typename Float>
void gelu_backward(Float* dpre, const Float* dout, const Float* pre, std::int64_t n, cudaStream_t stream) {
  gelu_backward_kernel<Float><<<blocks_for(n, kThreads), kThreads, 0, stream>>>(dpre, dout, pre, n);
  CUDA_CHECK(cudaGetLastError());
}

template void gelu_forward<float>(float*, const float*, std::int64_t, cudaStream_t);
template void gelu_forward<bf16>(bf16*, const bf16*, std::int64_t, cudaStream_t);
template void gelu_backward<float>(float*, const float*, const float*, std::int64_t, cudaStream_t);
template void gelu_backward<bf16>(bf16*, const bf16*, const bf16*, std::int64_t, cudaStream_t);

}  // namespace train_gpt::cuda
