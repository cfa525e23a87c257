// Shared by the blocks of attention_flash_forward.cu and attention_flash_backward.cu: which head and which rows a block
// works on, and where those lie.
#pragma once

#include <cstdint>

#include "kernels/cuda/check.h"
#include "kernels/cuda/packs.cuh"

namespace train_gpt::cuda {

inline constexpr float kLog2E = 1.44269504F;

// Rows of a sequence and heads are counted in int, elements in std::int64_t.
struct AttentionShape {
  std::int64_t T, C, NH, heads;  // heads = B * NH
};

inline AttentionShape attention_shape(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH) {
  return {T, C, NH, B * NH};
}

// One head of one row of the batch, and the first row of the block's tile.
struct AttentionPlace {
  int b, h, head, first;
};

__device__ __forceinline__ AttentionPlace attention_place(const AttentionShape& shape, int head, int first) {
  const int heads = static_cast<int>(shape.NH);
  return {head / heads, head % heads, head, first};
}

// part: 0 q, 1 k, 2 v of qkv(B,T,3C), or of its gradient.
template <int kSize, typename Element>
__device__ __forceinline__ Element* head_of(Element* qkv, const AttentionShape& shape, const AttentionPlace& place,
                                            int part) {
  return qkv + place.b * shape.T * 3 * shape.C + part * shape.C + place.h * kSize;
}
template <int kSize, typename Element>
__device__ __forceinline__ Element* head_of_out(Element* out, const AttentionShape& shape,
                                                const AttentionPlace& place) {
  return out + place.b * shape.T * shape.C + place.h * kSize;
}

// Dynamic shared memory of the kernel, beyond the 48 KiB that every kernel may use.
template <typename Tiles, typename Kernel>
int allow_shared_memory(Kernel* kernel) {
  constexpr int kBytes = static_cast<int>(sizeof(Tiles));
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  return kBytes;
}

}  // namespace train_gpt::cuda
