#include "kernels/cuda/matmul.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/multiprocessors.h"
#include "kernels/cuda/operation_parts.h"

namespace train_gpt::cuda {
namespace {

template <typename Value>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}
template <typename Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

bool has_auxiliary(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
}
bool has_bias(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

// As documented by cuBLASLt: an auxiliary matrix has a leading dimension divisible by 8, and DGELU needs k > 1.
bool is_documented(const Product& product) {
  if (!has_auxiliary(product.epilogue)) return true;
  return product.m % 8 == 0 && (product.epilogue != CUBLASLT_EPILOGUE_DGELU || product.k > 1);
}

// Buffers start at multiples of 256 bytes, or at a row of such a buffer.
std::uint32_t alignment_of_rows(std::int64_t leading_dimension, std::int64_t element_bytes) {
  const std::int64_t row = leading_dimension * element_bytes;
  return static_cast<std::uint32_t>(std::min<std::int64_t>(row & -row, 256));
}

std::int64_t bytes_of(cudaDataType type) { return type == CUDA_R_16BF ? 2 : 4; }

cublasLtMatrixLayout_t layout(cudaDataType type, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t result = nullptr;
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&result, type, static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), rows));
  return result;
}

}  // namespace

MatrixProducts::~MatrixProducts() {
  for (auto& [product, plan] : plans_) {
    for (cublasLtMatrixLayout_t one : {plan.a, plan.b, plan.d}) {
      if (one != nullptr) cublasLtMatrixLayoutDestroy(one);
    }
    if (plan.operation != nullptr) cublasLtMatmulDescDestroy(plan.operation);
  }
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

void MatrixProducts::open() {
  CUBLAS_CHECK(cublasLtCreate(&handle_));
  int gpu = 0, all = 0;
  CUDA_CHECK(cudaGetDevice(&gpu));
  CUDA_CHECK(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, gpu));
  multiprocessors_ = std::max(1, all - kLeftToMessages);
}

void MatrixProducts::describe(Plan& plan, const Product& product) {
  if (handle_ == nullptr) open();
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, product.op_a);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, product.op_b);
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, product.epilogue);
  set(plan.operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, multiprocessors_);
  if (has_auxiliary(product.epilogue)) set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.m);
  const bool plain_a = product.op_a == CUBLAS_OP_N, plain_b = product.op_b == CUBLAS_OP_N;
  plan.a = layout(inputs_, plain_a ? product.m : product.k, plain_a ? product.k : product.m);
  plan.b = layout(inputs_, plain_b ? product.k : product.n, plain_b ? product.n : product.k);
  plan.d = layout(product.fp32_output ? CUDA_R_32F : inputs_, product.m, product.n);
}

// The pointers of bias and auxiliary matrix are set: the heuristic looks at them.
void MatrixProducts::find_algorithm(Plan& plan, const Product& product) {
  cublasLtMatmulPreference_t preference = nullptr;
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
  // Parts of a long sum are added in fp32 and in one order: neither in the type of the output, which may be bf16, nor
  // in place, in whatever order they are ready.
  constexpr std::uint32_t kPrecise = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kPrecise);
  const std::int64_t in = bytes_of(inputs_), out = product.fp32_output ? 4 : in;
  const std::uint32_t of_d = alignment_of_rows(product.m, out);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      alignment_of_rows(product.op_a == CUBLAS_OP_N ? product.m : product.k, in));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      alignment_of_rows(product.op_b == CUBLAS_OP_N ? product.k : product.n, in));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_d);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_d);
  cublasLtMatmulHeuristicResult_t result{};
  int returned = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.a, plan.b, plan.d, plan.d,
                                                               preference, 1, &result, &returned);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) CUBLAS_CHECK(status);
  plan.found = status == CUBLAS_STATUS_SUCCESS && returned == 1;
  plan.algorithm = result.algo;
}

bool MatrixProducts::try_run(const Product& product, const ProductBuffers& buffers, cudaStream_t stream) {
  if (!is_documented(product)) return false;
  Plan& plan = plans_[product];
  if (plan.operation == nullptr) describe(plan, product);
  if (has_bias(product.epilogue)) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, buffers.bias);
  if (has_auxiliary(product.epilogue)) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, buffers.auxiliary);
  }
  if (product.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, buffers.bias_gradient);
  }
  if (!plan.searched) find_algorithm(plan, product);
  plan.searched = true;
  if (!plan.found) return false;
  const float one = 1, zero = 0;
  const cublasStatus_t status =
      cublasLtMatmul(handle_, plan.operation, &one, buffers.a, plan.a, buffers.b, plan.b,
                     buffers.c != nullptr ? &one : &zero, buffers.c != nullptr ? buffers.c : buffers.d, plan.d,
                     buffers.d, plan.d, &plan.algorithm, workspace_, kWorkspaceBytes, stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED)
    plan.found = false;  // nothing was enqueued
  else
    CUBLAS_CHECK(status);
  return plan.found;
}

void MatrixProducts::run(const Product& product, const ProductBuffers& buffers, cudaStream_t stream) {
  if (try_run(product, buffers, stream)) return;
  throw std::runtime_error("cuBLASLt has no algorithm for a product of " + std::to_string(product.m) + " x " +
                           std::to_string(product.k) + " by " + std::to_string(product.k) + " x " +
                           std::to_string(product.n) + " with epilogue " + std::to_string(product.epilogue));
}

// out^T (OC,N) = weight (C,OC)^T in (C,N)
template <typename Float>
void CudaDevice<Float>::matmul_residual_forward(void* out, const void* in, const void* weight, const void* bias,
                                                const void* residual, std::int64_t N, std::int64_t C, std::int64_t OC) {
  const Product product{CUBLAS_OP_T, CUBLAS_OP_N, OC,
                        N,           C,           bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT};
  products_.run(product, {.a = weight, .b = in, .c = residual, .d = out, .bias = bias}, stream_);
  progress();
}

template <typename Float>
void CudaDevice<Float>::matmul_forward(void* out, const void* in, const void* weight, const void* bias, std::int64_t N,
                                       std::int64_t C, std::int64_t OC) {
  matmul_residual_forward(out, in, weight, bias, /*residual=*/nullptr, N, C, OC);
}

// Where pre is not kept it goes to scratch: another epilogue might have another algorithm, and a unit that recomputes
// must have the bits of one that does not.
template <typename Float>
void CudaDevice<Float>::matmul_gelu_forward(void* out, void* pre, const void* in, const void* weight, const void* bias,
                                            std::int64_t N, std::int64_t C, std::int64_t OC) {
  if (pre == nullptr) pre = scratch_of(N * OC * static_cast<std::int64_t>(sizeof(Float)));
  const Product fused{CUBLAS_OP_T, CUBLAS_OP_N, OC, N, C, CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
  if (bias == nullptr ||
      !products_.try_run(fused, {.a = weight, .b = in, .d = out, .bias = bias, .auxiliary = pre}, stream_)) {
    matmul_forward(pre, in, weight, bias, N, C, OC);
    gelu_forward(low(out), low(pre), N * OC, stream_);
  }
  progress();
}

// din^T (C,N) = weight (C,OC) dout (OC,N)
template <typename Float>
void CudaDevice<Float>::matmul_backward_input(void* din, const void* dout, const void* weight, std::int64_t N,
                                              std::int64_t C, std::int64_t OC) {
  products_.run({CUBLAS_OP_N, CUBLAS_OP_N, C, N, OC}, {.a = weight, .b = dout, .d = din}, stream_);
  progress();
}

// A unit that recomputes keeps pre where dpre goes. cuBLASLt documents no such overlap: pre moves aside, and the
// product is the same one, with the same bits.
template <typename Float>
void CudaDevice<Float>::matmul_gelu_backward_input(void* dpre, const void* dout, const void* weight, const void* pre,
                                                   std::int64_t N, std::int64_t C, std::int64_t OC) {
  if (dpre == pre) {
    const std::int64_t bytes = N * C * static_cast<std::int64_t>(sizeof(Float));
    void* aside = scratch_of(bytes);
    copy(aside, pre, bytes);
    pre = aside;
  }
  const Product fused{CUBLAS_OP_N, CUBLAS_OP_N, C, N, OC, CUBLASLT_EPILOGUE_DGELU};
  if (!products_.try_run(fused, {.a = weight, .b = dout, .d = dpre, .auxiliary = const_cast<void*>(pre)}, stream_)) {
    matmul_backward_input(dpre, dout, weight, N, C, OC);
    gelu_backward(low(dpre), low(dpre), low(pre), N * C, stream_);
  }
  progress();
}

// dweight^T (C,OC) += in (C,N) dout (OC,N)^T, in fp32. The product reads dout anyway: the epilogue BGRADB sums it over
// N, in the type of the output (fp32), and stores the sums, which are then added to what earlier micro-batches left.
template <typename Float>
void CudaDevice<Float>::weight_gradient(float* dweight, float* dbias, const void* in, const void* dout, bool first,
                                        std::int64_t N, std::int64_t C, std::int64_t OC) {
  float* sums = dbias != nullptr ? scratch_of(bias_backward_scratch_bytes(N, OC)) : nullptr;
  const ProductBuffers buffers{.a = in, .b = dout, .c = first ? nullptr : dweight, .d = dweight, .bias_gradient = sums};
  const Product fused{CUBLAS_OP_N, CUBLAS_OP_T, C, OC, N, CUBLASLT_EPILOGUE_BGRADB, true};
  if (dbias != nullptr && products_.try_run(fused, buffers, stream_)) {
    add(dbias, sums, OC);
  } else {
    products_.run({CUBLAS_OP_N, CUBLAS_OP_T, C, OC, N, CUBLASLT_EPILOGUE_DEFAULT, true}, buffers, stream_);
    if (dbias != nullptr) bias_backward(dbias, low(dout), N, OC, sums, stream_);
  }
  progress();
}

template <typename Float>
void CudaDevice<Float>::matmul_backward_weight(float* dweight, float* dbias, const void* in, const void* dout,
                                               std::int64_t N, std::int64_t C, std::int64_t OC) {
  weight_gradient(dweight, dbias, in, dout, /*first=*/false, N, C, OC);
}

template <typename Float>
void CudaDevice<Float>::matmul_first_backward_weight(float* dweight, float* dbias, const void* in, const void* dout,
                                                     std::int64_t N, std::int64_t C, std::int64_t OC) {
  weight_gradient(dweight, dbias, in, dout, /*first=*/true, N, C, OC);
}

TRAIN_GPT_FOR_FLOAT_AND_BF16(matmul_forward)
TRAIN_GPT_FOR_FLOAT_AND_BF16(matmul_gelu_forward)
TRAIN_GPT_FOR_FLOAT_AND_BF16(matmul_residual_forward)
TRAIN_GPT_FOR_FLOAT_AND_BF16(matmul_backward_input)
TRAIN_GPT_FOR_FLOAT_AND_BF16(matmul_gelu_backward_input)
TRAIN_GPT_FOR_FLOAT_AND_BF16(matmul_backward_weight)
TRAIN_GPT_FOR_FLOAT_AND_BF16(matmul_first_backward_weight)

}  // namespace train_gpt::cuda
