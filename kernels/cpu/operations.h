// The arithmetic of the cpu device: free functions on fp32, shared out over a ThreadPool. Shapes and formulas are those
// of kernels/device.h; what is said there about bits holds here. Scratch that an operation needs is passed in, one
// piece per worker.
#pragma once

#include <cstdint>

#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace train_gpt::cpu {

// Scratch of each worker; pieces are multiples of 256 bytes.
struct Scratch {
  float* base = nullptr;
  std::int64_t floats_per_worker = 0;
  float* of(int worker) const { return base + worker * floats_per_worker; }
};
std::int64_t matmul_scratch_floats(std::int64_t N, std::int64_t C);  // of a product (N,C): one tile
std::int64_t attention_scratch_floats(std::int64_t T);

// memory.cpp
void zero(ThreadPool& pool, void* out, std::int64_t bytes);
void copy(ThreadPool& pool, void* out, const void* in, std::int64_t bytes);
void add(ThreadPool& pool, float* out, const float* in, std::int64_t n);

// embedding.cpp
void embedding_forward(ThreadPool& pool, float* out, const std::int32_t* tokens, const float* wte, const float* wpe,
                       std::int64_t B, std::int64_t T, std::int64_t C);
void embedding_backward(ThreadPool& pool, float* dwte, float* dwpe, const float* dout, const std::int32_t* tokens,
                        std::int64_t B, std::int64_t T, std::int64_t C);

// layernorm.cpp
void layernorm_forward(ThreadPool& pool, float* out, float* mean, float* rstd, const float* in, const float* weight,
                       const float* bias, std::int64_t N, std::int64_t C);
void layernorm_backward_input(ThreadPool& pool, float* din, const float* dout, const float* dresidual, const float* in,
                              const float* mean, const float* rstd, const float* weight, std::int64_t N,
                              std::int64_t C);
void layernorm_backward_weight(ThreadPool& pool, float* dweight, float* dbias, const float* dout, const float* in,
                               const float* mean, const float* rstd, std::int64_t N, std::int64_t C);

// matmul.cpp
void matmul_forward(ThreadPool& pool, float* out, const float* in, const float* weight, const float* bias,
                    std::int64_t N, std::int64_t C, std::int64_t OC);
void matmul_gelu_forward(ThreadPool& pool, float* out, float* pre, const float* in, const float* weight,
                         const float* bias, std::int64_t N, std::int64_t C, std::int64_t OC);
void matmul_residual_forward(ThreadPool& pool, float* out, const float* in, const float* weight, const float* bias,
                             const float* residual, std::int64_t N, std::int64_t C, std::int64_t OC);
void matmul_backward_input(ThreadPool& pool, float* din, const float* dout, const float* weight, std::int64_t N,
                           std::int64_t C, std::int64_t OC);
void matmul_gelu_backward_input(ThreadPool& pool, Scratch scratch, float* dpre, const float* dout, const float* weight,
                                const float* pre, std::int64_t N, std::int64_t C, std::int64_t OC);
// accumulate false: dweight is set, not added to
void matmul_backward_weight(ThreadPool& pool, float* dweight, float* dbias, const float* in, const float* dout,
                            bool accumulate, std::int64_t N, std::int64_t C, std::int64_t OC);

// attention.cpp
void attention_forward(ThreadPool& pool, Scratch scratch, float* out, float* lse, const float* qkv, std::int64_t B,
                       std::int64_t T, std::int64_t C, std::int64_t NH);
void attention_backward(ThreadPool& pool, Scratch scratch, float* dqkv, const float* dout, const float* qkv,
                        const float* out, const float* lse, std::int64_t B, std::int64_t T, std::int64_t C,
                        std::int64_t NH);

// cross_entropy.cpp
void cross_entropy(ThreadPool& pool, float* losses, float* logits, const std::int32_t* targets, float dloss,
                   bool with_gradient, std::int64_t rows, std::int64_t V, std::int64_t Vp);

// optimizer.cpp
void adamw(ThreadPool& pool, float* new_parameter, float* m, float* v, const float* parameter, const float* gradient,
           const AdamWScalars& scalars, const AdamWConstants& constants, bool keep_moments, std::int64_t n);
void adamw_moments(ThreadPool& pool, float* m, float* v, const float* gradient, const AdamWScalars& scalars,
                   const AdamWConstants& constants, std::int64_t n);
void squared_sums(ThreadPool& pool, double* sums, const float* x, std::int64_t n);

}  // namespace train_gpt::cpu
