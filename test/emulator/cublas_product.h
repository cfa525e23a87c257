// The arithmetic of the emulated cuBLAS: one fp32 matrix product on the host.
//
// Every output element is ((0 + a0 b0) + a1 b1) + .. over rising k, each product and each sum rounded to fp32, whatever
// the sizes, transposes and strides: results depend on the values alone, not on tiles, batches or order of calls.
#pragma once

#include <cstdint>

#include "cublas_types.h"

namespace emulator::cublas {

// Element (i, j) lies at data + i * row_stride + j * column_stride (in elements).
struct Operand {
  const void* data = nullptr;
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 1;
  std::int64_t column_stride = 0;
};

// out(m, n), packed column-major, = a(m, k) b(k, n). The inputs are rounded as `rounding` says before they are
// multiplied.
void multiply(float* out, const Operand& a, const Operand& b, InputRounding rounding);

}  // namespace emulator::cublas
