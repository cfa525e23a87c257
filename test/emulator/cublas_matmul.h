// One matrix product as both interfaces, cuBLAS and cuBLASLt, describe it: D = epilogue(alpha op(A) op(B) + beta C),
// with the rules that decide whether the real library would take it, and its execution as a stream operation.
//
// Rules are NVIDIA's documentation (cuBLAS 13, "cublasLtMatmul()" and the tables of its attributes). Anything that it
// does not allow is refused, and so is anything that this emulation does not have. A refusal returns the status the
// documentation gives and says on stderr what was asked and which rule forbids it.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "cublas_product.h"
#include "cublas_types.h"

namespace emulator::cublas {

struct Matrix {
  const void* data = nullptr;
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t leading_dimension = 0;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  std::int64_t batch_count = 1;
  std::int64_t batch_stride = 0;  // elements
};
// Bytes from the first to past the last element, all matrices of the batch.
std::size_t bytes_of(const Matrix& matrix);

struct Matmul {
  std::string call;  // "cublasLtMatmul", "cublasGemmEx"
  cublasOperation_t op_a = CUBLAS_OP_N;
  cublasOperation_t op_b = CUBLAS_OP_N;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale_type = CUDA_R_32F;
  Matrix a, b, c, d;

  bool scalars_on_device = false;  // then alpha and beta are read when the operation runs
  const float* alpha = nullptr;
  const float* beta = nullptr;

  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int bias_type = -1;  // -1: that of D
  std::int64_t bias_stride = 0;
  void* auxiliary = nullptr;
  int auxiliary_type = -1;
  std::int64_t auxiliary_leading_dimension = 0;
  std::int64_t auxiliary_stride = 0;

  // How the parts of k are added: 0 in one piece, else a cublasLtReductionScheme_t.
  std::uint32_t reduction = 0;
  int multiprocessors = -1;  // that it counts on; 0: on all; -1: not said

  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;  // what the chosen algorithm uses

  std::int64_t m() const { return d.rows; }
  std::int64_t n() const { return d.columns; }
  std::int64_t k() const { return op_a == CUBLAS_OP_N ? a.columns : a.rows; }
};

std::string epilogue_name(cublasLtEpilogue_t epilogue);  // "GELU_AUX_BIAS"
bool adds_bias(cublasLtEpilogue_t epilogue);
bool writes_bias_gradient(cublasLtEpilogue_t epilogue);
bool uses_auxiliary(cublasLtEpilogue_t epilogue);

// "cublasLtMatmul(m 5 n 3 k 7, TN, bf16 -> fp32, epilogue BIAS)"
std::string describe(const Matmul& matmul);

// A broken rule; `status` is CUBLAS_STATUS_SUCCESS where none is.
struct Refusal {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  std::string rule;
  explicit operator bool() const { return status != CUBLAS_STATUS_SUCCESS; }
};
// The rules that can be checked without the pointers (cublasLtMatmulAlgoGetHeuristic) ..
Refusal check_problem(const Matmul& matmul);
// .. and with them: null, alignment, aliasing. Ranges outside of the device's allocations end the process, as an
// illegal access would.
Refusal check_pointers(const Matmul& matmul);

// Says it on stderr, remembers it, and gives back the status.
cublasStatus_t refuse(const std::string& call, const Refusal& refusal);
// "cublasLtMatmul(..): CUBLAS_STATUS_INVALID_VALUE: .." of the last refusal in this process, for tests.
const std::string& last_refusal();

// Appends the (checked) product to the stream. Host scalars are read now.
void enqueue_matmul(const Matmul& matmul, cudaStream_t stream);

}  // namespace emulator::cublas
