// Handles of cuBLAS; a cublasHandle_t also serves where a cublasLtHandle_t is asked for, as in the real library.
#pragma once

#include <cublas_v2.h>

#include <cstddef>

namespace emulator::cublas {

struct CublasHandle {
  cudaStream_t stream = nullptr;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  void* workspace = nullptr;  // null: the library's own
  std::size_t workspace_bytes = 0;
};

CublasHandle* create_handle();
bool is_live_handle(const void* handle);
// Waits for the device first, as the documentation says of cublasDestroy and cublasLtDestroy.
void destroy_handle(void* handle);

}  // namespace emulator::cublas
