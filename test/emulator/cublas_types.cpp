#include "cublas_types.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace emulator::cublas {

std::size_t element_bytes(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F:
      return 4;
    case CUDA_R_16BF:
    case CUDA_R_16F:
      return 2;
    default:
      return 0;
  }
}

std::string type_name(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F:
      return "fp32";
    case CUDA_R_16BF:
      return "bf16";
    case CUDA_R_16F:
      return "fp16";
    default:
      return "cudaDataType " + std::to_string(static_cast<int>(type));
  }
}

std::string operation_name(cublasOperation_t operation) {
  switch (operation) {
    case CUBLAS_OP_N:
      return "N";
    case CUBLAS_OP_T:
      return "T";
    case CUBLAS_OP_C:
      return "C";
    default:
      return "cublasOperation_t " + std::to_string(static_cast<int>(operation));
  }
}

std::string compute_name(cublasComputeType_t compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_32F:
      return "CUBLAS_COMPUTE_32F";
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      return "CUBLAS_COMPUTE_32F_PEDANTIC";
    case CUBLAS_COMPUTE_32F_FAST_16F:
      return "CUBLAS_COMPUTE_32F_FAST_16F";
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      return "CUBLAS_COMPUTE_32F_FAST_16BF";
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return "CUBLAS_COMPUTE_32F_FAST_TF32";
    case CUBLAS_COMPUTE_16F:
      return "CUBLAS_COMPUTE_16F";
    default:
      return "cublasComputeType_t " + std::to_string(static_cast<int>(compute));
  }
}

void to_floats(float* out, const void* in, cudaDataType type, std::int64_t n) {
  if (type == CUDA_R_32F) {
    std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(float));
  } else if (type == CUDA_R_16BF) {
    const auto* bits = static_cast<const std::uint16_t*>(in);
    for (std::int64_t i = 0; i < n; ++i) out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16);
  } else {
    const auto* halves = static_cast<const __half*>(in);
    for (std::int64_t i = 0; i < n; ++i) out[i] = __half2float(halves[i]);
  }
}

void from_floats(void* out, const float* in, cudaDataType type, std::int64_t n) {
  if (type == CUDA_R_32F) {
    std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(float));
  } else if (type == CUDA_R_16BF) {
    auto* values = static_cast<__nv_bfloat16*>(out);
    for (std::int64_t i = 0; i < n; ++i) values[i] = __float2bfloat16(in[i]);
  } else {
    auto* values = static_cast<__half*>(out);
    for (std::int64_t i = 0; i < n; ++i) values[i] = __float2half(in[i]);
  }
}

InputRounding input_rounding(cublasComputeType_t compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return InputRounding::tf32;
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      return InputRounding::bf16;
    case CUBLAS_COMPUTE_32F_FAST_16F:
      return InputRounding::fp16;
    default:
      return InputRounding::none;
  }
}

float rounded(float x, InputRounding rounding) {
  switch (rounding) {
    case InputRounding::none:
      return x;
    case InputRounding::bf16:
      return __bfloat162float(__float2bfloat16(x));
    case InputRounding::fp16:
      return __half2float(__float2half(x));
    case InputRounding::tf32: {
      if (!std::isfinite(x)) return x;
      constexpr std::uint32_t kDropped = 13;  // 23 - 10 bits of the mantissa
      const auto bits = std::bit_cast<std::uint32_t>(x) + (1U << (kDropped - 1));
      return std::bit_cast<float>(bits & ~((1U << kDropped) - 1));
    }
  }
  return x;
}

}  // namespace emulator::cublas
