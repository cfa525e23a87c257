// The arithmetic of the cuda device: host functions that enqueue kernels on a stream. Float is float or bf16; shapes
// and formulas are those of kernels/device.h. Scratch is device memory that belongs to the operation until it ends; the
// functions named *_scratch_bytes say how much.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device.h"

namespace train_gpt::cuda {

using bf16 = __nv_bfloat16;

// embedding.cu
template <typename Float>
void embedding_forward(Float* out, const std::int32_t* tokens, const Float* wte, const Float* wpe, std::int64_t B,
                       std::int64_t T, std::int64_t C, cudaStream_t stream);
template <typename Float>
void embedding_backward(float* dwte, float* dwpe, const Float* dout, const std::int32_t* tokens, std::int64_t B,
                        std::int64_t T, std::int64_t C, cudaStream_t stream);

// layernorm.cu
template <typename Float>
void layernorm_forward(Float* out, float* mean, float* rstd, const Float* in, const Float* weight, const Float* bias,
                       std::int64_t N, std::int64_t C, cudaStream_t stream);
template <typename Float>
void layernorm_backward_input(Float* din, const Float* dout, const Float* dresidual, const Float* in, const float* mean,
                              const float* rstd, const Float* weight, std::int64_t N, std::int64_t C,
                              cudaStream_t stream);
std::int64_t layernorm_backward_weight_scratch_bytes(std::int64_t N, std::int64_t C);
template <typename Float>
void layernorm_backward_weight(float* dweight, float* dbias, const Float* dout, const Float* in, const float* mean,
                               const float* rstd, std::int64_t N, std::int64_t C, float* scratch, cudaStream_t stream);

// bias.cu: dbias(OC) += column sums of dout(N,OC)
std::int64_t bias_backward_scratch_bytes(std::int64_t N, std::int64_t OC);
template <typename Float>
void bias_backward(float* dbias, const Float* dout, std::int64_t N, std::int64_t OC, float* scratch,
                   cudaStream_t stream);

// gelu.cu: for shapes that cuBLASLt's epilogues do not take. out and in, dpre and dout may be the same.
template <typename Float>
void gelu_forward(Float* out, const Float* in, std::int64_t n, cudaStream_t stream);
template <typename Float>
void gelu_backward(Float* dpre, const Float* dout, const Float* pre, std::int64_t n, cudaStream_t stream);

// attention.cpp
std::int64_t attention_backward_scratch_bytes(std::int64_t B, std::int64_t T, std::int64_t NH);
template <typename Float>
void attention_forward(Float* out, float* lse, const Float* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                       std::int64_t NH, cudaStream_t stream);
template <typename Float>
void attention_backward(Float* dqkv, const Float* dout, const Float* qkv, const Float* out, const float* lse,
                        std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH, float* scratch,
                        cudaStream_t stream);

// cross_entropy.cu
template <typename Float>
void cross_entropy(float* losses, Float* logits, const std::int32_t* targets, float dloss, bool with_gradient,
                   std::int64_t rows, std::int64_t V, std::int64_t Vp, cudaStream_t stream);

// adamw.cu
template <typename Float>
void adamw(float* new_parameter, Float* low, float* m, float* v, const float* parameter, const float* gradient,
           const AdamWScalars* scalars, const AdamWConstants& constants, bool keep_moments, std::int64_t n,
           cudaStream_t stream);
void adamw_moments(float* m, float* v, const float* gradient, const AdamWScalars* scalars,
                   const AdamWConstants& constants, std::int64_t n, cudaStream_t stream);

// norm.cu
void squared_sums(double* sums, const float* x, std::int64_t n, cudaStream_t stream);

// convert.cu
void to_bf16(bf16* out, const float* in, std::int64_t n, cudaStream_t stream);
void to_fp32(float* out, const bf16* in, std::int64_t n, cudaStream_t stream);
void add(float* out, const float* in, std::int64_t n, cudaStream_t stream);

}  // namespace train_gpt::cuda
