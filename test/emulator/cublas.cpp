// The emulated cuBLAS: handles and the general matrix product in its three common forms.
#include <string>
#include <unordered_set>

#include "cublas_handle.h"
#include "cublas_matmul.h"

namespace emulator::cublas {
namespace {

std::unordered_set<const void*>& live_handles() {
  static std::unordered_set<const void*> handles;
  return handles;
}

cublasStatus_t not_initialised(const char* call) {
  return refuse(call, {CUBLAS_STATUS_NOT_INITIALIZED, "the handle was not created, or is destroyed"});
}
cublasStatus_t invalid(const char* call, const std::string& rule) {
  return refuse(call, {CUBLAS_STATUS_INVALID_VALUE, rule});
}

CublasHandle* handle_of(cublasHandle_t handle) {
  return is_live_handle(handle) ? reinterpret_cast<CublasHandle*>(handle) : nullptr;
}

struct Input {
  const void* data;
  cudaDataType type;
  int leading_dimension;
  long long stride;
};

// C = alpha op(A) op(B) + beta C for each of the batch.
cublasStatus_t gemm(const char* call, cublasHandle_t cublas, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                    int n, int k, const void* alpha, const Input& a, const Input& b, const void* beta, void* c,
                    cudaDataType c_type, int ldc, long long stride_c, int batch, cublasComputeType_t compute) {
  const CublasHandle* handle = handle_of(cublas);
  if (handle == nullptr) return not_initialised(call);
  if (m < 0 || n < 0 || k < 0 || batch < 0) return invalid(call, "a size is negative");
  if (m == 0 || n == 0 || batch == 0) return CUBLAS_STATUS_SUCCESS;
  if (k == 0) return refuse(call, {CUBLAS_STATUS_NOT_SUPPORTED, "k = 0 is not emulated"});
  Matmul p;
  p.call = call;
  p.op_a = op_a;
  p.op_b = op_b;
  p.compute = compute;
  p.a = {a.data,
         a.type,
         op_a == CUBLAS_OP_N ? m : k,
         op_a == CUBLAS_OP_N ? k : m,
         a.leading_dimension,
         CUBLASLT_ORDER_COL,
         batch,
         a.stride};
  p.b = {b.data,
         b.type,
         op_b == CUBLAS_OP_N ? k : n,
         op_b == CUBLAS_OP_N ? n : k,
         b.leading_dimension,
         CUBLASLT_ORDER_COL,
         batch,
         b.stride};
  p.c = p.d = {c, c_type, m, n, ldc, CUBLASLT_ORDER_COL, batch, stride_c};
  p.scalars_on_device = handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
  p.alpha = static_cast<const float*>(alpha);
  p.beta = static_cast<const float*>(beta);
  p.workspace = handle->workspace;
  p.workspace_bytes = handle->workspace_bytes;
  if (const Refusal refusal = check_problem(p)) return refuse(describe(p), refusal);
  if (const Refusal refusal = check_pointers(p)) return refuse(describe(p), refusal);
  enqueue_matmul(p, handle->stream);
  return CUBLAS_STATUS_SUCCESS;
}

cublasComputeType_t compute_of(cublasHandle_t cublas) {
  const CublasHandle* handle = handle_of(cublas);
  const bool tf32 = handle != nullptr && (handle->math_mode & 0xF) == CUBLAS_TF32_TENSOR_OP_MATH;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// CUBLAS_COMPUTE_32F in cublasGemmEx follows the handle's math mode for fp32 data.
cublasComputeType_t compute_of(cublasHandle_t cublas, cublasComputeType_t asked, cudaDataType inputs) {
  return asked == CUBLAS_COMPUTE_32F && inputs == CUDA_R_32F ? compute_of(cublas) : asked;
}

}  // namespace

CublasHandle* create_handle() {
  auto* handle = new CublasHandle;
  live_handles().insert(handle);
  return handle;
}

bool is_live_handle(const void* handle) { return live_handles().count(handle) != 0; }

void destroy_handle(void* handle) {
  cudaDeviceSynchronize();
  live_handles().erase(handle);
  delete static_cast<CublasHandle*>(handle);
}

}  // namespace emulator::cublas

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names
using namespace emulator::cublas;

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (handle == nullptr) return invalid("cublasCreate", "handle is null");
  *handle = reinterpret_cast<cublasHandle_t>(create_handle());
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (handle_of(handle) == nullptr) return not_initialised("cublasDestroy");
  destroy_handle(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version) {
  if (handle_of(handle) == nullptr) return not_initialised("cublasGetVersion");
  if (version == nullptr) return invalid("cublasGetVersion", "version is null");
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

// "unconditionally resets the cuBLAS library workspace back to the default workspace pool"
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  CublasHandle* h = handle_of(handle);
  if (h == nullptr) return not_initialised("cublasSetStream");
  h->stream = stream;
  h->workspace = nullptr;
  h->workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  if (handle_of(handle) == nullptr) return not_initialised("cublasGetStream");
  *stream = handle_of(handle)->stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  CublasHandle* h = handle_of(handle);
  if (h == nullptr) return not_initialised("cublasSetWorkspace");
  if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) {
    return invalid("cublasSetWorkspace", "the workspace must be aligned to at least 256 bytes");
  }
  h->workspace = workspace;
  h->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  CublasHandle* h = handle_of(handle);
  if (h == nullptr) return not_initialised("cublasSetMathMode");
  const int kind = mode & 0xF;
  if (kind != CUBLAS_DEFAULT_MATH && kind != CUBLAS_PEDANTIC_MATH && kind != CUBLAS_TF32_TENSOR_OP_MATH) {
    return invalid("cublasSetMathMode", "mode " + std::to_string(mode) + " is not emulated");
  }
  h->math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  if (handle_of(handle) == nullptr) return not_initialised("cublasGetMathMode");
  *mode = handle_of(handle)->math_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  if (handle_of(handle) == nullptr) return not_initialised("cublasSetPointerMode");
  handle_of(handle)->pointer_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  if (handle_of(handle) == nullptr) return not_initialised("cublasGetPointerMode");
  *mode = handle_of(handle)->pointer_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                              int k, const float* alpha, const float* A, int lda, const float* B, int ldb,
                              const float* beta, float* C, int ldc) {
  return gemm("cublasSgemm", handle, transa, transb, m, n, k, alpha, {A, CUDA_R_32F, lda, 0}, {B, CUDA_R_32F, ldb, 0},
              beta, C, CUDA_R_32F, ldc, 0, 1, compute_of(handle));
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                         int m, int n, int k, const float* alpha, const float* A, int lda,
                                         long long strideA, const float* B, int ldb, long long strideB,
                                         const float* beta, float* C, int ldc, long long strideC, int batchCount) {
  return gemm("cublasSgemmStridedBatched", handle, transa, transb, m, n, k, alpha, {A, CUDA_R_32F, lda, strideA},
              {B, CUDA_R_32F, ldb, strideB}, beta, C, CUDA_R_32F, ldc, strideC, batchCount, compute_of(handle));
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                            int k, const void* alpha, const void* A, cudaDataType Atype, int lda, const void* B,
                            cudaDataType Btype, int ldb, const void* beta, void* C, cudaDataType Ctype, int ldc,
                            cublasComputeType_t computeType, cublasGemmAlgo_t /*algo*/) {
  return gemm("cublasGemmEx", handle, transa, transb, m, n, k, alpha, {A, Atype, lda, 0}, {B, Btype, ldb, 0}, beta, C,
              Ctype, ldc, 0, 1, compute_of(handle, computeType, Atype));
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                          int m, int n, int k, const void* alpha, const void* A, cudaDataType Atype,
                                          int lda, long long strideA, const void* B, cudaDataType Btype, int ldb,
                                          long long strideB, const void* beta, void* C, cudaDataType Ctype, int ldc,
                                          long long strideC, int batchCount, cublasComputeType_t computeType,
                                          cublasGemmAlgo_t /*algo*/) {
  return gemm("cublasGemmStridedBatchedEx", handle, transa, transb, m, n, k, alpha, {A, Atype, lda, strideA},
              {B, Btype, ldb, strideB}, beta, C, Ctype, ldc, strideC, batchCount,
              compute_of(handle, computeType, Atype));
}

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "<unknown>";
  }
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an invalid value was passed as an argument";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "the device lacks a feature";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the program failed to execute on the device";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality is not supported";
    default:
      return "an internal operation failed";
  }
}
// NOLINTEND
