// The contents that the emulated cuBLASLt gives to NVIDIA's opaque descriptors.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace emulator::cublas {

// The first word of each: a descriptor that was never initialised, or of another kind, is noticed.
enum class DescriptorKind : std::uint32_t {
  none = 0,
  layout = 0x6c61796fU,
  matmul = 0x6d61746dU,
  preference = 0x70726566U,
  algorithm = 0x616c676fU,
};

struct LayoutFields {
  DescriptorKind kind = DescriptorKind::layout;
  std::int32_t type = 0;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t leading_dimension = 0;
  std::int64_t batch_stride = 0;
  std::int64_t plane_offset = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::int32_t batch_count = 1;
  std::uint32_t batch_mode = 0;
};

struct MatmulFields {
  DescriptorKind kind = DescriptorKind::matmul;
  std::int32_t compute = 0;
  std::int32_t scale_type = 0;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t op_a = CUBLAS_OP_N;
  std::int32_t op_b = CUBLAS_OP_N;
  std::int32_t op_c = CUBLAS_OP_N;
  std::int32_t fill_mode = CUBLAS_FILL_MODE_FULL;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1;
  std::int32_t auxiliary_type = -1;
  std::int32_t multiprocessors = 0;
  void* bias = nullptr;
  std::int64_t bias_stride = 0;
  void* auxiliary = nullptr;
  std::int64_t auxiliary_leading_dimension = 0;
  std::int64_t auxiliary_stride = 0;
};

struct PreferenceFields {
  DescriptorKind kind = DescriptorKind::preference;
  std::uint32_t search_mode = CUBLASLT_SEARCH_BEST_FIT;
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // A, B, C, D
  float waves = 0;
  std::uint64_t implementations = ~std::uint64_t{0};
};

// An algorithm is good for the problem it was found for, and for others of the same kind whose buffers are aligned at
// least as well.
struct AlgorithmFields {
  DescriptorKind kind = DescriptorKind::algorithm;
  std::uint32_t problem = 0;          // hash of types, operations, orders, epilogue
  std::uint64_t workspace_bytes = 0;  // what it uses
  std::uint32_t reduction = 0;        // scheme by which it adds the two parts of k
  std::uint32_t alignment[4] = {};    // bytes that A, B, C, D must be aligned to, their columns (rows) included
};

static_assert(sizeof(LayoutFields) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(MatmulFields) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(PreferenceFields) <= sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(AlgorithmFields) <= sizeof(cublasLtMatmulAlgo_t));

// The fields, or null where the descriptor is null, uninitialised, destroyed or of another kind.
LayoutFields* fields(cublasLtMatrixLayout_t descriptor);
MatmulFields* fields(cublasLtMatmulDesc_t descriptor);
PreferenceFields* fields(cublasLtMatmulPreference_t descriptor);
const AlgorithmFields* fields(const cublasLtMatmulAlgo_t* algorithm);

}  // namespace emulator::cublas
