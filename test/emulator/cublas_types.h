// Element types of the emulated cuBLAS: sizes, names, and conversion to and from fp32, in which all products are
// accumulated.
#pragma once

#include <cublas_v2.h>
#include <library_types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator::cublas {

// Bytes of one element of CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F; 0 for types that are not emulated.
std::size_t element_bytes(cudaDataType type);
std::string type_name(cudaDataType type);                 // "bf16"
std::string operation_name(cublasOperation_t operation);  // "N", "T", "C"
std::string compute_name(cublasComputeType_t compute);

// n elements, packed; to a narrower type by round to nearest even.
void to_floats(float* out, const void* in, cudaDataType type, std::int64_t n);
void from_floats(void* out, const float* in, cudaDataType type, std::int64_t n);

// The part of an fp32 input that the multiplier sees: everything, or what CUBLAS_COMPUTE_32F_FAST_* leaves of it.
enum class InputRounding : std::uint8_t { none, tf32, bf16, fp16 };
InputRounding input_rounding(cublasComputeType_t compute);
// tf32 keeps 10 bits of the mantissa, rounded to nearest, ties away from zero (PTX cvt.rna.tf32.f32).
float rounded(float x, InputRounding rounding);

}  // namespace emulator::cublas
