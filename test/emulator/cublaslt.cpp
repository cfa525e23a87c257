// The emulated cuBLASLt: handles, the heuristic, and cublasLtMatmul.
#include <algorithm>
#include <bit>
#include <string>

#include "cublas_handle.h"
#include "cublas_matmul.h"
#include "cublaslt_descriptors.h"
#include "settings.h"

namespace emulator::cublas {
namespace {

// Enough to notice a caller that allows a workspace to the heuristic and then passes none, or somebody else's memory.
constexpr std::uint64_t kWorkspaceBytes = 64 * 1024;
// Widest access of the real kernels.
constexpr std::uint32_t kVectorBytes = 16;

Matrix matrix_of(const LayoutFields& layout, const void* data) {
  return {data,
          static_cast<cudaDataType>(layout.type),
          static_cast<std::int64_t>(layout.rows),
          static_cast<std::int64_t>(layout.columns),
          layout.leading_dimension,
          static_cast<cublasLtOrder_t>(layout.order),
          layout.batch_count,
          layout.batch_stride};
}

Refusal check_descriptors(const MatmulFields* matmul, std::initializer_list<const LayoutFields*> layouts) {
  if (matmul == nullptr)
    return {CUBLAS_STATUS_INVALID_VALUE, "the matmul descriptor is null, destroyed or of another kind"};
  for (const LayoutFields* layout : layouts) {
    if (layout == nullptr)
      return {CUBLAS_STATUS_INVALID_VALUE, "a matrix layout is null, destroyed or of another kind"};
    if (layout->plane_offset != 0 || layout->batch_mode != 0) {
      return {CUBLAS_STATUS_NOT_SUPPORTED, "planar complex matrices and batches by pointer are not emulated"};
    }
  }
  if (matmul->pointer_mode != CUBLASLT_POINTER_MODE_HOST && matmul->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE) {
    return {CUBLAS_STATUS_NOT_SUPPORTED, "vectors of alpha and beta are not emulated"};
  }
  if (matmul->op_c != CUBLAS_OP_N) return {CUBLAS_STATUS_NOT_SUPPORTED, "TRANSC: only CUBLAS_OP_N is supported"};
  if (matmul->fill_mode != CUBLAS_FILL_MODE_FULL) {
    return {CUBLAS_STATUS_NOT_SUPPORTED, "FILL_MODE: not supported for bf16, nor on Hopper and Blackwell"};
  }
  return {};
}

Matmul problem_of(const char* call, const MatmulFields& fields) {
  Matmul p;
  p.call = call;
  p.op_a = static_cast<cublasOperation_t>(fields.op_a);
  p.op_b = static_cast<cublasOperation_t>(fields.op_b);
  p.compute = static_cast<cublasComputeType_t>(fields.compute);
  p.scale_type = static_cast<cudaDataType>(fields.scale_type);
  p.scalars_on_device = fields.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  p.epilogue = static_cast<cublasLtEpilogue_t>(fields.epilogue);
  p.bias = fields.bias;
  p.bias_type = fields.bias_type;
  p.bias_stride = fields.bias_stride;
  p.multiprocessors = fields.multiprocessors;
  p.auxiliary = fields.auxiliary;
  p.auxiliary_type = fields.auxiliary_type;
  p.auxiliary_leading_dimension = fields.auxiliary_leading_dimension;
  p.auxiliary_stride = fields.auxiliary_stride;
  return p;
}

std::uint32_t hash_of(const Matmul& p) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const int value :
       {static_cast<int>(p.op_a), static_cast<int>(p.op_b), static_cast<int>(p.compute), static_cast<int>(p.a.type),
        static_cast<int>(p.d.type), static_cast<int>(p.epilogue), static_cast<int>(p.a.order),
        static_cast<int>(p.b.order), static_cast<int>(p.d.order), static_cast<int>(p.d.batch_count > 1)}) {
    hash = (hash ^ static_cast<std::uint32_t>(value)) * 16777619U;
  }
  return hash;
}

// Largest power of two up to kVectorBytes that divides the strides of a matrix.
std::uint32_t stride_alignment(const Matrix& matrix) {
  const std::size_t size = element_bytes(matrix.type);
  std::uint64_t bits = kVectorBytes | static_cast<std::uint64_t>(matrix.leading_dimension) * size;
  if (matrix.batch_count > 1) bits |= static_cast<std::uint64_t>(matrix.batch_stride) * size;
  return 1U << std::countr_zero(bits);
}

// The worst scheme of those that are allowed.
std::uint32_t worst_reduction(std::uint32_t allowed) {
  for (const std::uint32_t scheme : {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE,
                                     CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}) {
    if ((allowed & scheme) != 0) return scheme;
  }
  return CUBLASLT_REDUCTION_SCHEME_NONE;
}

AlgorithmFields find_algorithm(const Matmul& p, const PreferenceFields& preference) {
  AlgorithmFields algorithm;
  algorithm.problem = hash_of(p);
  algorithm.reduction = worst_reduction(preference.reduction_schemes);
  algorithm.workspace_bytes = std::min(kWorkspaceBytes, preference.workspace_bytes & ~std::uint64_t{255});
  const Matrix* matrices[] = {&p.a, &p.b, &p.c, &p.d};
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t promised =
        std::max(preference.alignment[i], static_cast<std::uint32_t>(element_bytes(matrices[i]->type)));
    algorithm.alignment[i] = std::min(stride_alignment(*matrices[i]), std::bit_floor(promised));
  }
  return algorithm;
}

// Is this algorithm good for this problem, these buffers, this workspace?
Refusal check_algorithm(const AlgorithmFields* algorithm, const Matmul& p, std::size_t workspace_bytes) {
  if (algorithm == nullptr) return {CUBLAS_STATUS_INVALID_VALUE, "algo was not initialised by the heuristic"};
  if (algorithm->problem != hash_of(p)) {
    return {CUBLAS_STATUS_INVALID_VALUE,
            "algo was found for another problem: types, transposes, memory orders, epilogue or batching differ"};
  }
  const Matrix* matrices[] = {&p.a, &p.b, &p.c, &p.d};
  for (int i = 0; i < 4; ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(matrices[i]->data);
    if (address % algorithm->alignment[i] != 0 || stride_alignment(*matrices[i]) < algorithm->alignment[i]) {
      return {CUBLAS_STATUS_INVALID_VALUE,
              std::string("algo reads or writes matrix ") + "ABCD"[i] + " in units of " +
                  std::to_string(algorithm->alignment[i]) +
                  " bytes, its address or leading dimension is not a multiple of that (see "
                  "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*_BYTES)"};
    }
  }
  if (workspace_bytes < algorithm->workspace_bytes) {
    return {CUBLAS_STATUS_INVALID_VALUE, "the workspace has " + std::to_string(workspace_bytes) +
                                             " bytes, algo needs " + std::to_string(algorithm->workspace_bytes)};
  }
  return {};
}

Refusal check_handle(cublasLtHandle_t handle) {
  if (is_live_handle(handle)) return {};
  return {CUBLAS_STATUS_NOT_INITIALIZED, "the handle was not created, or is destroyed"};
}

}  // namespace
}  // namespace emulator::cublas

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names
using namespace emulator::cublas;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return refuse("cublasLtCreate", {CUBLAS_STATUS_INVALID_VALUE, "lightHandle is null"});
  *handle = reinterpret_cast<cublasLtHandle_t>(create_handle());
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (const Refusal refusal = check_handle(handle)) return refuse("cublasLtDestroy", refusal);
  destroy_handle(handle);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) { return cublasGetStatusName(status); }
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasGetStatusString(status); }

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  constexpr const char* kCall = "cublasLtMatmulAlgoGetHeuristic";
  if (const Refusal refusal = check_handle(handle)) return refuse(kCall, refusal);
  if (requested <= 0 || results == nullptr || returned == nullptr || fields(preference) == nullptr) {
    return refuse(kCall, {CUBLAS_STATUS_INVALID_VALUE, "no room for a result, or no preference"});
  }
  *returned = 0;
  if (const Refusal refusal = check_descriptors(fields(operation), {fields(a), fields(b), fields(c), fields(d)})) {
    return refuse(kCall, refusal);
  }
  Matmul p = problem_of(kCall, *fields(operation));
  p.a = matrix_of(*fields(a), nullptr);
  p.b = matrix_of(*fields(b), nullptr);
  p.c = matrix_of(*fields(c), nullptr);
  p.d = matrix_of(*fields(d), nullptr);
  if (const Refusal refusal = check_problem(p)) return refuse(describe(p), refusal);
  const bool common = p.epilogue == CUBLASLT_EPILOGUE_DEFAULT || p.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (!common && !emulator::settings().cublaslt_epilogues) {
    return refuse(describe(p), {CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm has this epilogue (EMULATOR_EPILOGUES=0)"});
  }
  const AlgorithmFields algorithm = find_algorithm(p, *fields(preference));
  results[0] = {};
  new (results[0].algo.data) AlgorithmFields(algorithm);
  results[0].workspaceSize = algorithm.workspace_bytes;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1.0F;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* A,
                              cublasLtMatrixLayout_t a, const void* B, cublasLtMatrixLayout_t b, const void* beta,
                              const void* C, cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspaceSizeInBytes,
                              cudaStream_t stream) {
  constexpr const char* kCall = "cublasLtMatmul";
  if (const Refusal refusal = check_handle(handle)) return refuse(kCall, refusal);
  const cublasLtMatrixLayout_t c_or_d = c != nullptr ? c : d;
  if (const Refusal refusal = check_descriptors(fields(operation), {fields(a), fields(b), fields(c_or_d), fields(d)})) {
    return refuse(kCall, refusal);
  }
  Matmul p = problem_of(kCall, *fields(operation));
  p.a = matrix_of(*fields(a), A);
  p.b = matrix_of(*fields(b), B);
  p.c = matrix_of(*fields(c_or_d), C);
  p.d = matrix_of(*fields(d), D);
  p.alpha = static_cast<const float*>(alpha);
  p.beta = static_cast<const float*>(beta);
  p.workspace = workspace;
  if (const Refusal refusal = check_problem(p)) return refuse(describe(p), refusal);
  if (algo != nullptr) {
    if (const Refusal refusal = check_algorithm(fields(algo), p, workspaceSizeInBytes))
      return refuse(describe(p), refusal);
    p.workspace_bytes = fields(algo)->workspace_bytes;
    p.reduction = fields(algo)->reduction;
  } else {
    p.workspace_bytes = workspace == nullptr ? 0 : std::min<std::size_t>(kWorkspaceBytes, workspaceSizeInBytes);
  }
  if (p.workspace_bytes != 0 && workspace == nullptr) {
    return refuse(describe(p), {CUBLAS_STATUS_INVALID_VALUE, "the workspace is null, algo needs one"});
  }
  if (const Refusal refusal = check_pointers(p)) return refuse(describe(p), refusal);
  enqueue_matmul(p, stream);
  return CUBLAS_STATUS_SUCCESS;
}
// NOLINTEND
