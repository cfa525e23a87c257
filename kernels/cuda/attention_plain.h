// Causal attention for any head size up to 256, in fp32 arithmetic (attention_plain.cu).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace train_gpt::cuda {

inline constexpr std::int64_t kMaxHeadSize = 256;

template <typename Float>
void attention_forward_plain(Float* out, float* lse, const Float* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                             std::int64_t NH, cudaStream_t stream);
// delta(B,NH,T): of attention_delta.h
template <typename Float>
void attention_backward_plain(Float* dqkv, const Float* dout, const Float* qkv, const float* lse, const float* delta,
                              std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH, cudaStream_t stream);

}  // namespace train_gpt::cuda
