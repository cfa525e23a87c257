// Row sums that the backward pass of attention needs (attention_delta.cu).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace train_gpt::cuda {

// delta(B,NH,T) = sums over the head of dout(B,T,C) * out(B,T,C)
template <typename Float>
void attention_delta(float* delta, const Float* dout, const Float* out, std::int64_t B, std::int64_t T, std::int64_t C,
                     std::int64_t NH, cudaStream_t stream);

}  // namespace train_gpt::cuda
