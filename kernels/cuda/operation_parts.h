// Parts of the cuda device's operations that are defined in one file and used in another. Scratch is device memory that
// belongs to the operation until it ends.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device.h"

namespace train_gpt::cuda {

std::int64_t embedding_backward_scratch_bytes(std::int64_t N, std::int64_t C);
std::int64_t layernorm_backward_weight_scratch_bytes(std::int64_t N, std::int64_t C);
std::int64_t attention_backward_scratch_bytes(Precision precision, std::int64_t B, std::int64_t T, std::int64_t C,
                                              std::int64_t NH);

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

}  // namespace train_gpt::cuda
