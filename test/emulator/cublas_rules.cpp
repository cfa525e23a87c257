#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "cublas_matmul.h"
#include "memory.h"

namespace emulator::cublas {
namespace {

std::string last_refusal_text;

Refusal invalid(std::string rule) { return {CUBLAS_STATUS_INVALID_VALUE, std::move(rule)}; }
Refusal unsupported(std::string rule) { return {CUBLAS_STATUS_NOT_SUPPORTED, std::move(rule)}; }
std::string text(std::int64_t value) { return std::to_string(value); }

bool is_column_major(const Matrix& matrix) { return matrix.order == CUBLASLT_ORDER_COL; }
std::int64_t shortest_leading_dimension(const Matrix& matrix) {
  return is_column_major(matrix) ? matrix.rows : matrix.columns;
}

// "Table 1. When A, B, C, and D are regular column- or row-major matrices", the rows that are emulated.
bool types_are_documented(const Matmul& p) {
  struct Row {
    cudaDataType inputs, output;
  };
  constexpr std::array<Row, 5> kCompute32F = {{{CUDA_R_16BF, CUDA_R_16BF},
                                               {CUDA_R_16F, CUDA_R_16F},
                                               {CUDA_R_16BF, CUDA_R_32F},
                                               {CUDA_R_16F, CUDA_R_32F},
                                               {CUDA_R_32F, CUDA_R_32F}}};
  if (p.scale_type != CUDA_R_32F || p.a.type != p.b.type || p.c.type != p.d.type) return false;
  switch (p.compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      return std::any_of(kCompute32F.begin(), kCompute32F.end(),
                         [&](const Row& row) { return row.inputs == p.a.type && row.output == p.d.type; });
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return p.a.type == CUDA_R_32F && p.d.type == CUDA_R_32F;
    default:
      return false;
  }
}

Refusal check_types(const Matmul& p) {
  if (types_are_documented(p)) return {};
  return unsupported(compute_name(p.compute) + ", scale " + type_name(p.scale_type) + ", A " + type_name(p.a.type) +
                     ", B " + type_name(p.b.type) + ", C " + type_name(p.c.type) + ", D " + type_name(p.d.type) +
                     " is not a row of the table of supported types (emulated: bf16 or fp16 inputs with outputs of the "
                     "same type or fp32, fp32 with fp32; C and D of one type, fp32 scale)");
}

Refusal check_layout(const Matrix& matrix, const char* name, bool may_broadcast) {
  const std::string which = std::string("matrix ") + name;
  if (matrix.order != CUBLASLT_ORDER_COL && matrix.order != CUBLASLT_ORDER_ROW) {
    return unsupported(which + " has order " + text(matrix.order) + "; emulated: CUBLASLT_ORDER_COL and _ROW");
  }
  if (matrix.rows <= 0 || matrix.columns <= 0) {
    return invalid(which + " is " + text(matrix.rows) + " x " + text(matrix.columns) + "; both must be positive");
  }
  const bool broadcast = may_broadcast && matrix.leading_dimension == 0;
  if (matrix.leading_dimension < shortest_leading_dimension(matrix) && !broadcast) {
    return invalid(which + " is " + text(matrix.rows) + " x " + text(matrix.columns) + ", order " +
                   (is_column_major(matrix) ? "COL" : "ROW") + ", with leading dimension " +
                   text(matrix.leading_dimension) + "; it must be at least " +
                   text(shortest_leading_dimension(matrix)));
  }
  if (matrix.batch_count <= 0) return invalid(which + " has batch count " + text(matrix.batch_count));
  if (matrix.batch_stride < 0) return invalid(which + " has a negative batch stride");
  return {};
}

Refusal check_shapes(const Matmul& p) {
  const std::int64_t a_rows = p.op_a == CUBLAS_OP_N ? p.a.rows : p.a.columns;
  const std::int64_t b_rows = p.op_b == CUBLAS_OP_N ? p.b.rows : p.b.columns;
  const std::int64_t b_columns = p.op_b == CUBLAS_OP_N ? p.b.columns : p.b.rows;
  if (a_rows != p.m() || b_columns != p.n() || b_rows != p.k()) {
    return invalid("op(A) is " + text(a_rows) + " x " + text(p.k()) + ", op(B) " + text(b_rows) + " x " +
                   text(b_columns) + ", D " + text(p.m()) + " x " + text(p.n()) + ": they do not fit");
  }
  if (p.c.rows != p.d.rows || p.c.columns != p.d.columns || p.c.order != p.d.order) {
    return invalid("C and D must have the same rows, columns and memory order");
  }
  if (p.a.batch_count != p.d.batch_count || p.b.batch_count != p.d.batch_count || p.c.batch_count != p.d.batch_count) {
    return invalid("the batch counts of A, B, C and D differ: " + text(p.a.batch_count) + ", " + text(p.b.batch_count) +
                   ", " + text(p.c.batch_count) + ", " + text(p.d.batch_count));
  }
  Matrix one = p.d;
  one.batch_count = 1;
  if (p.d.batch_count > 1 && p.d.batch_stride * static_cast<std::int64_t>(element_bytes(p.d.type)) <
                                 static_cast<std::int64_t>(bytes_of(one))) {
    return invalid("the matrices of D's batch overlap: stride " + text(p.d.batch_stride) + " elements");
  }
  return {};
}

Refusal check_bias(const Matmul& p) {
  const bool gradient = writes_bias_gradient(p.epilogue);
  if (!gradient && !adds_bias(p.epilogue)) return {};
  if (p.bias_type != -1 && p.bias_type != p.d.type) {
    return invalid("CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE is " + type_name(static_cast<cudaDataType>(p.bias_type)) +
                   "; the table of supported types wants that of D here, " + type_name(p.d.type));
  }
  const std::int64_t length = p.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n() : p.m();
  if (gradient && p.d.batch_count > 1 && p.bias_stride < length) {
    return invalid("the bias gradients of the batch overlap: CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE is " +
                   text(p.bias_stride) + ", one gradient has " + text(length) + " elements");
  }
  return {};
}

Refusal check_auxiliary(const Matmul& p) {
  if (!uses_auxiliary(p.epilogue)) return {};
  if (p.auxiliary == nullptr) {
    return invalid("epilogue " + epilogue_name(p.epilogue) +
                   " needs CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER (the heuristic, too, depends on its value)");
  }
  if (p.auxiliary_leading_dimension < p.m() || p.auxiliary_leading_dimension % 8 != 0) {
    return invalid("CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD is " + text(p.auxiliary_leading_dimension) +
                   "; it must be divisible by 8 and no less than the number of rows of D, " + text(p.m()));
  }
  if (p.auxiliary_type != -1 && p.auxiliary_type != p.d.type) {
    return invalid("CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE must be unset or the type of D, " +
                   type_name(p.d.type));
  }
  if (p.d.batch_count > 1 &&
      (p.auxiliary_stride % 8 != 0 || p.auxiliary_stride < p.auxiliary_leading_dimension * p.n())) {
    return invalid("CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE is " + text(p.auxiliary_stride) +
                   "; it must be divisible by 8, and the matrices of the batch may not overlap");
  }
  return {};
}

// Bias gradients of the inputs. The documentation gives the formula only; the layouts are those that NVIDIA's
// nvmath-python accepts ("it's required that 'a' is in column-major layout") and Transformer Engine uses.
Refusal check_input_gradient(const Matmul& p) {
  if (p.epilogue == CUBLASLT_EPILOGUE_BGRADA && (p.op_a != CUBLAS_OP_N) == is_column_major(p.a)) {
    return unsupported(
        "epilogue BGRADA is known to work only where the rows of op(A) are adjacent in memory: column-major "
        "A with CUBLAS_OP_N, or row-major A with CUBLAS_OP_T");
  }
  if (p.epilogue == CUBLASLT_EPILOGUE_BGRADB && (p.op_b == CUBLAS_OP_N) == is_column_major(p.b)) {
    return unsupported(
        "epilogue BGRADB is known to work only where the columns of op(B) are adjacent in memory: "
        "column-major B with CUBLAS_OP_T, or row-major B with CUBLAS_OP_N");
  }
  if (p.epilogue == CUBLASLT_EPILOGUE_BGRADB && !is_column_major(p.d)) {
    return unsupported("epilogue BGRADB with a row-major D is avoided by NVIDIA's own nvmath-python as faulty");
  }
  return {};
}

Refusal check_epilogue(const Matmul& p) {
  const std::string name = epilogue_name(p.epilogue);
  if (name.empty()) {
    return unsupported("epilogue " + text(p.epilogue) +
                       " is not emulated (emulated: DEFAULT, BIAS, GELU, GELU_BIAS, GELU_AUX, GELU_AUX_BIAS, DGELU, "
                       "DGELU_BGRAD, BGRADA, BGRADB, RELU, RELU_BIAS)");
  }
  const bool input_gradient = p.epilogue == CUBLASLT_EPILOGUE_BGRADA || p.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !input_gradient && !is_column_major(p.d)) {
    return unsupported("epilogue " + name +
                       ": ReLU, dReLu, GELU, dGELU and Bias epilogue modes are not supported when D's "
                       "memory order is CUBLASLT_ORDER_ROW");
  }
  const bool gelu_gradient = p.epilogue == CUBLASLT_EPILOGUE_DGELU || p.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
  if (gelu_gradient && p.k() == 1) return unsupported("epilogue " + name + " is not supported by cuBLASLt for k = 1");
  for (const Refusal& refusal : {check_bias(p), check_auxiliary(p), check_input_gradient(p)}) {
    if (refusal) return refusal;
  }
  return {};
}

struct Region {
  const char* name;
  const char* begin;
  std::size_t bytes;
};
bool overlap(const Region& x, const Region& y) {
  return x.bytes != 0 && y.bytes != 0 && x.begin < y.begin + y.bytes && y.begin < x.begin + x.bytes;
}
Region region(const char* name, const void* data, std::size_t bytes) {
  return {name, static_cast<const char*>(data), bytes};
}
Region region(const char* name, const Matrix& matrix) { return region(name, matrix.data, bytes_of(matrix)); }

std::size_t bias_bytes(const Matmul& p) {
  if (!adds_bias(p.epilogue) && !writes_bias_gradient(p.epilogue)) return 0;
  const std::int64_t length = p.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n() : p.m();
  return static_cast<std::size_t>((p.d.batch_count - 1) * p.bias_stride + length) * element_bytes(p.d.type);
}

std::size_t auxiliary_bytes(const Matmul& p) {
  if (!uses_auxiliary(p.epilogue)) return 0;
  const std::int64_t elements =
      (p.d.batch_count - 1) * p.auxiliary_stride + (p.n() - 1) * p.auxiliary_leading_dimension + p.m();
  return static_cast<std::size_t>(elements) * element_bytes(p.d.type);
}

// Blocks of threads run in no order, so an output that overlaps anything else is a race.
Refusal check_aliasing(const Matmul& p, bool reads_c) {
  const bool in_place = p.c.data == p.d.data;
  if (in_place && reads_c && (p.c.leading_dimension != p.d.leading_dimension || p.c.batch_stride != p.d.batch_stride)) {
    return invalid("C and D are the same buffer but their layouts differ; in place needs Cdesc == Ddesc");
  }
  std::vector<Region> outputs = {region("D", p.d), region("the workspace", p.workspace, p.workspace_bytes)};
  std::vector<Region> inputs = {region("A", p.a), region("B", p.b)};
  if (reads_c && !in_place) inputs.push_back(region("C", p.c));
  const bool writes_auxiliary = uses_auxiliary(p.epilogue) && (p.epilogue & CUBLASLT_EPILOGUE_GELU) != 0;
  (writes_auxiliary ? outputs : inputs).push_back(region("the auxiliary matrix", p.auxiliary, auxiliary_bytes(p)));
  (writes_bias_gradient(p.epilogue) ? outputs : inputs).push_back(region("the bias", p.bias, bias_bytes(p)));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    inputs.insert(inputs.end(), outputs.begin() + static_cast<std::ptrdiff_t>(i) + 1, outputs.end());
    for (const Region& input : inputs) {
      if (overlap(outputs[i], input)) {
        return invalid(std::string(outputs[i].name) + " and " + input.name +
                       " overlap; only C == D is documented as working in place");
      }
    }
    inputs.resize(inputs.size() - (outputs.size() - i - 1));
  }
  return {};
}

Refusal check_alignment(const char* name, const void* pointer, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0) return {};
  return invalid(std::string(name) + " must be aligned to " + std::to_string(alignment) + " bytes");
}

}  // namespace

std::size_t bytes_of(const Matrix& matrix) {
  const std::int64_t lines = is_column_major(matrix) ? matrix.columns : matrix.rows;
  const std::int64_t elements = (matrix.batch_count - 1) * matrix.batch_stride +
                                (lines - 1) * matrix.leading_dimension + shortest_leading_dimension(matrix);
  return static_cast<std::size_t>(elements) * element_bytes(matrix.type);
}

Refusal check_problem(const Matmul& p) {
  for (const auto& [matrix, name] :
       {std::pair{&p.a, "A"}, std::pair{&p.b, "B"}, std::pair{&p.c, "C"}, std::pair{&p.d, "D"}}) {
    if (const Refusal refusal = check_layout(*matrix, name, name[0] == 'C')) return refusal;
  }
  if (const Refusal refusal = check_types(p)) return refusal;
  if (const Refusal refusal = check_shapes(p)) return refusal;
  return check_epilogue(p);
}

Refusal check_pointers(const Matmul& p) {
  if (p.alpha == nullptr || p.beta == nullptr) return invalid("alpha or beta is null");
  const bool reads_c = p.scalars_on_device || *p.beta != 0.0F;
  if (p.a.data == nullptr || p.b.data == nullptr || p.d.data == nullptr || (reads_c && p.c.data == nullptr)) {
    return invalid("a matrix pointer is null");
  }
  if (bias_bytes(p) != 0 && p.bias == nullptr) {
    return invalid("epilogue " + epilogue_name(p.epilogue) + " needs CUBLASLT_MATMUL_DESC_BIAS_POINTER");
  }
  const bool input_gradient = p.epilogue == CUBLASLT_EPILOGUE_BGRADA || p.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  if (input_gradient && !p.scalars_on_device && *p.alpha != 1.0F) {
    return unsupported("epilogue " + epilogue_name(p.epilogue) +
                       " with alpha != 1: the documentation does not say whether the bias gradient is scaled");
  }
  const std::size_t output = element_bytes(p.d.type);
  for (const Refusal& refusal :
       {check_alignment("A", p.a.data, element_bytes(p.a.type)),
        check_alignment("B", p.b.data, element_bytes(p.b.type)),
        check_alignment("C", reads_c ? p.c.data : nullptr, output), check_alignment("D", p.d.data, output),
        check_alignment("the bias", bias_bytes(p) != 0 ? p.bias : nullptr, output),
        check_alignment("the auxiliary matrix", auxiliary_bytes(p) != 0 ? p.auxiliary : nullptr, output),
        check_alignment("the workspace", p.workspace, 256), check_aliasing(p, reads_c)}) {
    if (refusal) return refusal;
  }
  const std::string call = describe(p);
  const auto require = [&](const void* pointer, std::size_t bytes, const char* name) {
    if (bytes != 0) require_device_range(pointer, bytes, (std::string(name) + " of " + call).c_str());
  };
  require(p.a.data, bytes_of(p.a), "A");
  require(p.b.data, bytes_of(p.b), "B");
  require(p.c.data, reads_c ? bytes_of(p.c) : 0, "C");
  require(p.d.data, bytes_of(p.d), "D");
  require(p.bias, bias_bytes(p), "bias");
  require(p.auxiliary, auxiliary_bytes(p), "auxiliary matrix");
  require(p.workspace, p.workspace_bytes, "workspace");
  if (p.scalars_on_device) {
    require(p.alpha, sizeof(float), "alpha");
    require(p.beta, sizeof(float), "beta");
  }
  return {};
}

cublasStatus_t refuse(const std::string& call, const Refusal& refusal) {
  last_refusal_text = call + ": " + cublasGetStatusName(refusal.status) + ": " + refusal.rule;
  std::fprintf(stderr, "emulator: refused: %s\n", last_refusal_text.c_str());
  return refusal.status;
}

const std::string& last_refusal() { return last_refusal_text; }

}  // namespace emulator::cublas
