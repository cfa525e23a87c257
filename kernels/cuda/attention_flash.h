// Causal attention on tensor cores for bf16 and head sizes 64 and 128 (attention_flash_forward.cu, .._backward.cu).
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace train_gpt::cuda {

inline bool has_flash_attention(std::int64_t head_size) { return head_size == 64 || head_size == 128; }

void attention_forward_flash(__nv_bfloat16* out, float* lse, const __nv_bfloat16* qkv, std::int64_t B, std::int64_t T,
                             std::int64_t C, std::int64_t NH, cudaStream_t stream);

std::int64_t flash_backward_scratch_bytes(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH);
// scratch: that many bytes of device memory, aligned to 16
void attention_backward_flash(__nv_bfloat16* dqkv, const __nv_bfloat16* dout, const __nv_bfloat16* qkv,
                              const __nv_bfloat16* out, const float* lse, void* scratch, std::int64_t B, std::int64_t T,
                              std::int64_t C, std::int64_t NH, cudaStream_t stream);

}  // namespace train_gpt::cuda
