// Causal attention: chooses the kernels by type and head size.
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/cuda/attention_delta.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_plain.h"
#include "kernels/cuda/operations.h"

namespace train_gpt::cuda {
namespace {

void require_supported(std::int64_t C, std::int64_t NH) {
  if (C / NH <= kMaxHeadSize) return;
  throw std::invalid_argument("heads of size " + std::to_string(C / NH) + " (hidden / heads): the cuda device has " +
                              "attention for sizes up to " + std::to_string(kMaxHeadSize) + "; use more heads");
}

}  // namespace

std::int64_t attention_backward_scratch_bytes(std::int64_t B, std::int64_t T, std::int64_t NH) {
  return B * T * NH * static_cast<std::int64_t>(sizeof(float));  // delta
}

template <typename Float>
void attention_forward(Float* out, float* lse, const Float* qkv, std::int64_t B, std::int64_t T, std::int64_t C,
                       std::int64_t NH, cudaStream_t stream) {
  require_supported(C, NH);
  if constexpr (std::is_same_v<Float, bf16>) {
    if (has_flash_attention(C / NH)) return attention_forward_flash(out, lse, qkv, B, T, C, NH, stream);
  }
  attention_forward_plain(out, lse, qkv, B, T, C, NH, stream);
}

template <typename Float>
void attention_backward(Float* dqkv, const Float* dout, const Float* qkv, const Float* out, const float* lse,
                        std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t NH, float* scratch,
                        cudaStream_t stream) {
  require_supported(C, NH);
  attention_delta(scratch, dout, out, B, T, C, NH, stream);
  if constexpr (std::is_same_v<Float, bf16>) {
    if (has_flash_attention(C / NH))
      return attention_backward_flash(dqkv, dout, qkv, lse, scratch, B, T, C, NH, stream);
  }
  attention_backward_plain(dqkv, dout, qkv, lse, scratch, B, T, C, NH, stream);
}

#define TRAIN_GPT_INSTANTIATE(Float)                                                                             \
  template void attention_forward<Float>(Float*, float*, const Float*, std::int64_t, std::int64_t, std::int64_t, \
                                         std::int64_t, cudaStream_t);                                            \
  template void attention_backward<Float>(Float*, const Float*, const Float*, const Float*, const float*,        \
                                          std::int64_t, std::int64_t, std::int64_t, std::int64_t, float*,        \
                                          cudaStream_t);
TRAIN_GPT_INSTANTIATE(float)
TRAIN_GPT_INSTANTIATE(bf16)

}  // namespace train_gpt::cuda
