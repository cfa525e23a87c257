// Errors of the CUDA libraries become std::runtime_error that names the call, the place and the library's text.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace train_gpt::cuda {

void check(cudaError_t error, const char* call, const char* file, int line);
void check(cublasStatus_t status, const char* call, const char* file, int line);

}  // namespace train_gpt::cuda

#define CUDA_CHECK(call) ::train_gpt::cuda::check((call), #call, __FILE__, __LINE__)
#define CUBLAS_CHECK(call) ::train_gpt::cuda::check((call), #call, __FILE__, __LINE__)
