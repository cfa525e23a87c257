// Causal attention: chooses the kernels by type and head size.
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/cuda/attention_delta.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_plain.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/operation_parts.h"

namespace train_gpt::cuda {
namespace {

void require_supported(std::int64_t C, std::int64_t NH) {
  if (C / NH <= kMaxHeadSize) return;
  throw std::invalid_argument("heads of size " + std::to_string(C / NH) + " (hidden / heads): the cuda device has " +
                              "attention for sizes up to " + std::to_string(kMaxHeadSize) + "; use more heads");
}

template <typename Float>
bool uses_flash(std::int64_t head_size) {
  return std::is_same_v<Float, bf16> && has_flash_attention(head_size);
}

}  // namespace

std::int64_t attention_backward_scratch_bytes(Precision precision, std::int64_t B, std::int64_t T, std::int64_t C,
                                              std::int64_t NH) {
  const bool flash = precision == Precision::bf16 && has_flash_attention(C / NH);
  return flash ? flash_backward_scratch_bytes(B, T, C, NH) : B * T * NH * static_cast<std::int64_t>(sizeof(float));
}

template <typename Float>
void CudaDevice<Float>::attention_forward(void* out, float* lse, const void* qkv, std::int64_t B, std::int64_t T,
                                          std::int64_t C, std::int64_t NH) {
  require_supported(C, NH);
  if (uses_flash<Float>(C / NH)) {
    if constexpr (std::is_same_v<Float, bf16>) attention_forward_flash(low(out), lse, low(qkv), B, T, C, NH, stream_);
  } else {
    attention_forward_plain(low(out), lse, low(qkv), B, T, C, NH, stream_);
  }
  progress();
}

template <typename Float>
void CudaDevice<Float>::attention_backward(void* dqkv, const void* dout, const void* qkv, const void* out,
                                           const float* lse, std::int64_t B, std::int64_t T, std::int64_t C,
                                           std::int64_t NH) {
  require_supported(C, NH);
  float* scratch = scratch_of(attention_backward_scratch_bytes(precision(), B, T, C, NH));
  if (uses_flash<Float>(C / NH)) {
    if constexpr (std::is_same_v<Float, bf16>) {
      attention_backward_flash(low(dqkv), low(dout), low(qkv), low(out), lse, scratch, B, T, C, NH, stream_);
    }
  } else {
    attention_delta(scratch, low(dout), low(out), B, T, C, NH, stream_);
    attention_backward_plain(low(dqkv), low(dout), low(qkv), lse, scratch, B, T, C, NH, stream_);
  }
  progress();
}

TRAIN_GPT_FOR_FLOAT_AND_BF16(attention_forward)
TRAIN_GPT_FOR_FLOAT_AND_BF16(attention_backward)

}  // namespace train_gpt::cuda
