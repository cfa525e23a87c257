// Descriptors of cuBLASLt: create, destroy, set and get attributes.
#include "cublaslt_descriptors.h"

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string>

#include "cublas_matmul.h"

namespace emulator::cublas {
namespace {

template <typename Fields, typename Opaque>
Fields* fields_of(Opaque* descriptor) {
  if (descriptor == nullptr) return nullptr;
  auto* found = reinterpret_cast<Fields*>(descriptor->data);
  return found->kind == Fields{}.kind ? found : nullptr;
}

// Where an attribute lives in its descriptor.
struct Attribute {
  int id;
  std::size_t offset, bytes;
};
#define EMULATOR_ATTRIBUTE(id, Fields, member) \
  { id, offsetof(Fields, member), sizeof(Fields::member) }

constexpr Attribute kLayoutAttributes[] = {
    EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_TYPE, LayoutFields, type),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ORDER, LayoutFields, order),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ROWS, LayoutFields, rows),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_COLS, LayoutFields, columns),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_LD, LayoutFields, leading_dimension),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, LayoutFields, batch_count),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, LayoutFields, batch_stride),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, LayoutFields, plane_offset),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, LayoutFields, batch_mode),
};

constexpr Attribute kMatmulAttributes[] = {
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, MatmulFields, compute),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_SCALE_TYPE, MatmulFields, scale_type),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_POINTER_MODE, MatmulFields, pointer_mode),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, MatmulFields, op_a),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, MatmulFields, op_b),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSC, MatmulFields, op_c),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_FILL_MODE, MatmulFields, fill_mode),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, MatmulFields, epilogue),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, MatmulFields, bias),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, MatmulFields, bias_stride),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, MatmulFields, bias_type),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, MatmulFields, auxiliary),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, MatmulFields, auxiliary_leading_dimension),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, MatmulFields, auxiliary_stride),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, MatmulFields, auxiliary_type),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, MatmulFields, multiprocessors),
};

constexpr Attribute kPreferenceAttributes[] = {
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_PREF_SEARCH_MODE, PreferenceFields, search_mode),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, PreferenceFields, workspace_bytes),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, PreferenceFields, reduction_schemes),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, PreferenceFields, alignment[0]),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, PreferenceFields, alignment[1]),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, PreferenceFields, alignment[2]),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, PreferenceFields, alignment[3]),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, PreferenceFields, waves),
    EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_PREF_IMPL_MASK, PreferenceFields, implementations),
};

cublasStatus_t invalid(const char* call, const std::string& rule) {
  return refuse(call, {CUBLAS_STATUS_INVALID_VALUE, rule});
}

const Attribute* find(std::span<const Attribute> attributes, int id) {
  for (const Attribute& attribute : attributes) {
    if (attribute.id == id) return &attribute;
  }
  return nullptr;
}

std::string wrong_size(int id, std::size_t bytes, std::size_t expected) {
  return "attribute " + std::to_string(id) + " given with " + std::to_string(bytes) + " bytes, it has " +
         std::to_string(expected);
}

template <typename Fields>
cublasStatus_t set(const char* call, Fields* descriptor, std::span<const Attribute> attributes, int id,
                   const void* value, std::size_t bytes) {
  if (descriptor == nullptr) return invalid(call, "the descriptor is null, destroyed or of another kind");
  const Attribute* attribute = find(attributes, id);
  if (attribute == nullptr) {
    return refuse(call, {CUBLAS_STATUS_NOT_SUPPORTED, "attribute " + std::to_string(id) + " is not emulated"});
  }
  if (value == nullptr) return invalid(call, "the value is null");
  if (bytes != attribute->bytes) return invalid(call, wrong_size(id, bytes, attribute->bytes));
  std::memcpy(reinterpret_cast<char*>(descriptor) + attribute->offset, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Fields>
cublasStatus_t get(const char* call, const Fields* descriptor, std::span<const Attribute> attributes, int id,
                   void* value, std::size_t bytes, std::size_t* written) {
  if (descriptor == nullptr) return invalid(call, "the descriptor is null, destroyed or of another kind");
  const Attribute* attribute = find(attributes, id);
  if (attribute == nullptr) {
    return refuse(call, {CUBLAS_STATUS_NOT_SUPPORTED, "attribute " + std::to_string(id) + " is not emulated"});
  }
  if (bytes == 0 && written == nullptr) return invalid(call, "sizeInBytes is 0 and sizeWritten is null");
  if (bytes != 0 && (value == nullptr || bytes != attribute->bytes)) {
    return invalid(call, value == nullptr ? "the buffer is null" : wrong_size(id, bytes, attribute->bytes));
  }
  if (bytes != 0) std::memcpy(value, reinterpret_cast<const char*>(descriptor) + attribute->offset, bytes);
  if (written != nullptr) *written = attribute->bytes;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque, typename Fields>
cublasStatus_t initialise(const char* call, Opaque* descriptor, std::size_t bytes, const Fields& initial) {
  if (descriptor == nullptr) return invalid(call, "the descriptor is null");
  if (bytes < sizeof(Opaque)) return refuse(call, {CUBLAS_STATUS_ALLOC_FAILED, "the space given is too small"});
  *descriptor = {};
  new (descriptor->data) Fields(initial);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque, typename Fields>
cublasStatus_t create(const char* call, Opaque** descriptor, const Fields& initial) {
  if (descriptor == nullptr) return invalid(call, "the descriptor is null");
  *descriptor = new Opaque{};
  return initialise(call, *descriptor, sizeof(Opaque), initial);
}

template <typename Opaque>
cublasStatus_t destroy(const char* call, Opaque* descriptor) {
  if (fields(descriptor) == nullptr) return invalid(call, "the descriptor is null, destroyed or of another kind");
  fields(descriptor)->kind = DescriptorKind::none;
  delete descriptor;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

LayoutFields* fields(cublasLtMatrixLayout_t descriptor) { return fields_of<LayoutFields>(descriptor); }
MatmulFields* fields(cublasLtMatmulDesc_t descriptor) { return fields_of<MatmulFields>(descriptor); }
PreferenceFields* fields(cublasLtMatmulPreference_t descriptor) { return fields_of<PreferenceFields>(descriptor); }
const AlgorithmFields* fields(const cublasLtMatmulAlgo_t* algorithm) {
  return fields_of<AlgorithmFields>(const_cast<cublasLtMatmulAlgo_t*>(algorithm));
}

}  // namespace emulator::cublas

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names
using namespace emulator::cublas;

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t descriptor, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld) {
  LayoutFields initial;
  initial.type = type;
  initial.rows = rows;
  initial.columns = cols;
  initial.leading_dimension = ld;
  return initialise("cublasLtMatrixLayoutInit", descriptor, size, initial);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* descriptor, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  LayoutFields initial;
  initial.type = type;
  initial.rows = rows;
  initial.columns = cols;
  initial.leading_dimension = ld;
  return create("cublasLtMatrixLayoutCreate", descriptor, initial);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t descriptor) {
  return destroy("cublasLtMatrixLayoutDestroy", descriptor);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t descriptor, cublasLtMatrixLayoutAttribute_t attr,
                                                const void* buf, size_t sizeInBytes) {
  return set("cublasLtMatrixLayoutSetAttribute", fields(descriptor), kLayoutAttributes, attr, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t descriptor, cublasLtMatrixLayoutAttribute_t attr,
                                                void* buf, size_t sizeInBytes, size_t* sizeWritten) {
  return get("cublasLtMatrixLayoutGetAttribute", fields(descriptor), kLayoutAttributes, attr, buf, sizeInBytes,
             sizeWritten);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t descriptor, size_t size,
                                               cublasComputeType_t computeType, cudaDataType_t scaleType) {
  MatmulFields initial;
  initial.compute = computeType;
  initial.scale_type = scaleType;
  return initialise("cublasLtMatmulDescInit", descriptor, size, initial);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor, cublasComputeType_t computeType,
                                        cudaDataType_t scaleType) {
  MatmulFields initial;
  initial.compute = computeType;
  initial.scale_type = scaleType;
  return create("cublasLtMatmulDescCreate", descriptor, initial);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  return destroy("cublasLtMatmulDescDestroy", descriptor);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attr,
                                              const void* buf, size_t sizeInBytes) {
  return set("cublasLtMatmulDescSetAttribute", fields(descriptor), kMatmulAttributes, attr, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attr,
                                              void* buf, size_t sizeInBytes, size_t* sizeWritten) {
  return get("cublasLtMatmulDescGetAttribute", fields(descriptor), kMatmulAttributes, attr, buf, sizeInBytes,
             sizeWritten);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t descriptor, size_t size) {
  return initialise("cublasLtMatmulPreferenceInit", descriptor, size, PreferenceFields{});
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* descriptor) {
  return create("cublasLtMatmulPreferenceCreate", descriptor, PreferenceFields{});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t descriptor) {
  return destroy("cublasLtMatmulPreferenceDestroy", descriptor);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t descriptor,
                                                    cublasLtMatmulPreferenceAttributes_t attr, const void* buf,
                                                    size_t sizeInBytes) {
  return set("cublasLtMatmulPreferenceSetAttribute", fields(descriptor), kPreferenceAttributes, attr, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t descriptor,
                                                    cublasLtMatmulPreferenceAttributes_t attr, void* buf,
                                                    size_t sizeInBytes, size_t* sizeWritten) {
  return get("cublasLtMatmulPreferenceGetAttribute", fields(descriptor), kPreferenceAttributes, attr, buf, sizeInBytes,
             sizeWritten);
}
// NOLINTEND
