#include "cublas_matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "first_use.h"
#include "memory.h"
#include "multiprocessors.h"
#include "stream.h"

namespace emulator::cublas {
namespace {

// Tanh form (Hendrycks and Gimpel 2016), as the documentation of cublasLtEpilogue_t gives it.
constexpr float kSqrtTwoOverPi = 0.7978845608028654F;
constexpr float kCubic = 0.044715F;

float gelu(float x) { return 0.5F * x * (1.0F + std::tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x))); }

float gelu_derivative(float x) {
  const float t = std::tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x));
  return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * kSqrtTwoOverPi * (1.0F + 3.0F * kCubic * x * x);
}

Operand operand(const Matrix& matrix, cublasOperation_t operation, std::int64_t batch) {
  Operand x{static_cast<const char*>(matrix.data) +
                static_cast<std::size_t>(batch * matrix.batch_stride) * element_bytes(matrix.type),
            matrix.type,
            matrix.rows,
            matrix.columns,
            1,
            matrix.leading_dimension};
  if (matrix.order == CUBLASLT_ORDER_ROW) std::swap(x.row_stride, x.column_stride);
  if (operation != CUBLAS_OP_N) {
    std::swap(x.rows, x.columns);
    std::swap(x.row_stride, x.column_stride);
  }
  return x;
}

char* element(const void* data, cudaDataType type, std::int64_t index) {
  return static_cast<char*>(const_cast<void*>(data)) + static_cast<std::size_t>(index) * element_bytes(type);
}

// Reads or writes the lines (columns, or rows of a row-major matrix) of one matrix, telling the race detector.
template <typename Line>
void for_each_line(const Matrix& matrix, std::int64_t batch, Line&& line) {
  const bool columns = matrix.order == CUBLASLT_ORDER_COL;
  const std::int64_t lines = columns ? matrix.columns : matrix.rows;
  const std::int64_t length = columns ? matrix.rows : matrix.columns;
  for (std::int64_t l = 0; l < lines; ++l) {
    line(element(matrix.data, matrix.type, batch * matrix.batch_stride + l * matrix.leading_dimension), l, length);
  }
}

void announce_reads(const Matrix& matrix, std::int64_t batch, const char* name) {
  for_each_line(matrix, batch, [&](const char* data, std::int64_t, std::int64_t length) {
    device_reads(data, static_cast<std::size_t>(length) * element_bytes(matrix.type), name);
  });
}

// values (packed column-major) += beta * C
void add_scaled(std::vector<float>& values, const Matrix& c, std::int64_t batch, float beta) {
  std::vector<float> line_values;
  for_each_line(c, batch, [&](const char* data, std::int64_t l, std::int64_t length) {
    device_reads(data, static_cast<std::size_t>(length) * element_bytes(c.type), "C");
    line_values.resize(static_cast<std::size_t>(length));
    to_floats(line_values.data(), data, c.type, length);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t index = c.order == CUBLASLT_ORDER_COL ? l * c.rows + i : i * c.rows + l;
      values[static_cast<std::size_t>(index)] += beta * line_values[static_cast<std::size_t>(i)];
    }
  });
}

void store(const Matrix& d, const std::vector<float>& values, std::int64_t batch) {
  std::vector<float> line_values;
  for_each_line(d, batch, [&](char* data, std::int64_t l, std::int64_t length) {
    device_writes(data, static_cast<std::size_t>(length) * element_bytes(d.type), "D");
    line_values.resize(static_cast<std::size_t>(length));
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t index = d.order == CUBLASLT_ORDER_COL ? l * d.rows + i : i * d.rows + l;
      line_values[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>(index)];
    }
    from_floats(data, line_values.data(), d.type, length);
  });
}

std::vector<float> load_vector(const void* data, cudaDataType type, std::int64_t n, const char* name) {
  device_reads(data, static_cast<std::size_t>(n) * element_bytes(type), name);
  std::vector<float> values(static_cast<std::size_t>(n));
  to_floats(values.data(), data, type, n);
  return values;
}

void store_vector(void* data, cudaDataType type, const std::vector<float>& values, const char* name) {
  device_writes(data, values.size() * element_bytes(type), name);
  from_floats(data, values.data(), type, static_cast<std::int64_t>(values.size()));
}

// The way of one column of alpha op(A) op(B) + beta C to D.
void finish_column(const Matmul& p, float* column, std::int64_t j, std::int64_t batch, const std::vector<float>& bias) {
  const std::int64_t m = p.m();
  if (adds_bias(p.epilogue)) {
    for (std::int64_t i = 0; i < m; ++i) column[i] += bias[static_cast<std::size_t>(i)];
  }
  char* auxiliary = uses_auxiliary(p.epilogue)
                        ? element(p.auxiliary, p.d.type, batch * p.auxiliary_stride + j * p.auxiliary_leading_dimension)
                        : nullptr;
  if ((p.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
    if (auxiliary != nullptr)
      store_vector(auxiliary, p.d.type, std::vector<float>(column, column + m), "auxiliary matrix");
    for (std::int64_t i = 0; i < m; ++i) column[i] = gelu(column[i]);
  } else if ((p.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) {
    for (std::int64_t i = 0; i < m; ++i) column[i] = std::max(column[i], 0.0F);
  } else if (auxiliary != nullptr) {  // DGELU
    const std::vector<float> pre = load_vector(auxiliary, p.d.type, m, "auxiliary matrix");
    for (std::int64_t i = 0; i < m; ++i) column[i] *= gelu_derivative(pre[static_cast<std::size_t>(i)]);
  }
}

// Sums over the columns of x, in rising order.
std::vector<float> row_sums(const Operand& x) {
  std::vector<float> sums(static_cast<std::size_t>(x.rows), 0.0F);
  for (std::int64_t l = 0; l < x.columns; ++l) {
    for (std::int64_t i = 0; i < x.rows; ++i) {
      float value = 0;
      to_floats(&value, element(x.data, x.type, i * x.row_stride + l * x.column_stride), x.type, 1);
      sums[static_cast<std::size_t>(i)] += value;
    }
  }
  return sums;
}

void write_bias_gradient(const Matmul& p, std::int64_t batch, const Operand& a, const Operand& b,
                         const std::vector<float>& d_values) {
  std::vector<float> gradient;
  if (p.epilogue == CUBLASLT_EPILOGUE_BGRADA) {
    gradient = row_sums(a);
  } else if (p.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
    gradient = row_sums({b.data, b.type, b.columns, b.rows, b.column_stride, b.row_stride});
  } else {  // of the result, before it is rounded to D's type
    gradient = row_sums({d_values.data(), CUDA_R_32F, p.m(), p.n(), 1, p.m()});
  }
  store_vector(element(p.bias, p.d.type, batch * p.bias_stride), p.d.type, gradient, "bias gradient");
}

// Columns (rows) begin .. end of x.
Operand columns(const Operand& x, std::int64_t begin, std::int64_t end) {
  return {element(x.data, x.type, begin * x.column_stride), x.type, x.rows, end - begin, x.row_stride, x.column_stride};
}
Operand rows(const Operand& x, std::int64_t begin, std::int64_t end) {
  return {element(x.data, x.type, begin * x.row_stride), x.type, end - begin, x.columns, x.row_stride, x.column_stride};
}

// Where k is cut: another place for every kind of product.
std::vector<std::int64_t> cuts(const Matmul& p) {
  const std::int64_t k = p.k();
  if (p.reduction == CUBLASLT_REDUCTION_SCHEME_NONE || k < 4) return {0, k};
  if (p.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE) return {0, k / 4, k / 2, k};
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const std::int64_t value : {p.m(), p.n(), k, std::int64_t{p.op_a}, std::int64_t{p.op_b}, std::int64_t{p.a.type},
                                   std::int64_t{p.d.type}, std::int64_t{p.epilogue}}) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211ULL;
  }
  return {0, k * static_cast<std::int64_t>(1 + (hash >> 32) % 3) / 4, k};
}

void round_to(std::vector<float>& values, cudaDataType type) {
  std::vector<char> narrow(values.size() * element_bytes(type));
  from_floats(narrow.data(), values.data(), type, static_cast<std::int64_t>(values.size()));
  to_floats(values.data(), narrow.data(), type, static_cast<std::int64_t>(values.size()));
}

// values = op(A) op(B), the parts of k added as the reduction scheme says.
void multiply_in_parts(std::vector<float>& values, const Matmul& p, const Operand& a, const Operand& b) {
  const std::vector<std::int64_t> cut = cuts(p);
  if (cut.size() == 2) return multiply(values.data(), a, b, input_rounding(p.compute));
  static std::uint64_t call = 0;
  std::vector<std::size_t> order(cut.size() - 1);
  std::iota(order.begin(), order.end(), 0);
  if (p.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE && ++call % 2 == 0) std::swap(order.front(), order.back());
  std::vector<float> part(values.size());
  for (const std::size_t i : order) {
    multiply(part.data(), columns(a, cut[i], cut[i + 1]), rows(b, cut[i], cut[i + 1]), input_rounding(p.compute));
    if (p.reduction == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) round_to(part, p.d.type);
    for (std::size_t j = 0; j < values.size(); ++j) values[j] += part[j];
  }
}

void run_one(const Matmul& p, float alpha, float beta, std::int64_t batch) {
  const Operand a = operand(p.a, p.op_a, batch), b = operand(p.b, p.op_b, batch);
  std::vector<float> values(static_cast<std::size_t>(p.m() * p.n()), 0.0F);
  if (alpha != 0.0F || writes_bias_gradient(p.epilogue)) {
    announce_reads(p.a, batch, "A");
    announce_reads(p.b, batch, "B");
  }
  if (alpha != 0.0F) {
    multiply_in_parts(values, p, a, b);
    if (alpha != 1.0F) {
      for (float& value : values) value *= alpha;
    }
  }
  if (beta != 0.0F) add_scaled(values, p.c, batch, beta);
  std::vector<float> bias;
  if (adds_bias(p.epilogue))
    bias = load_vector(element(p.bias, p.d.type, batch * p.bias_stride), p.d.type, p.m(), "bias");
  for (std::int64_t j = 0; j < p.n(); ++j) finish_column(p, values.data() + j * p.m(), j, batch, bias);
  if (writes_bias_gradient(p.epilogue)) write_bias_gradient(p, batch, a, b, values);
  store(p.d, values, batch);
}

// All that decides which kernel runs, as far as a program can tell: sizes, transposes, types and epilogue, and whether
// the product is added to C.
std::string kind_of(const Matmul& p, float beta) {
  const char* adds = p.scalars_on_device ? ", beta on the device" : beta != 0.0F ? ", beta not 0" : ", beta 0";
  return describe(p) + adds;
}

float scalar(const Matmul& p, const float* value, const char* name) {
  if (p.scalars_on_device) device_reads(value, sizeof(float), name);
  return *value;
}

}  // namespace

std::string epilogue_name(cublasLtEpilogue_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return "DEFAULT";
    case CUBLASLT_EPILOGUE_RELU:
      return "RELU";
    case CUBLASLT_EPILOGUE_RELU_BIAS:
      return "RELU_BIAS";
    case CUBLASLT_EPILOGUE_BIAS:
      return "BIAS";
    case CUBLASLT_EPILOGUE_GELU:
      return "GELU";
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      return "GELU_BIAS";
    case CUBLASLT_EPILOGUE_GELU_AUX:
      return "GELU_AUX";
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      return "GELU_AUX_BIAS";
    case CUBLASLT_EPILOGUE_DGELU:
      return "DGELU";
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
      return "DGELU_BGRAD";
    case CUBLASLT_EPILOGUE_BGRADA:
      return "BGRADA";
    case CUBLASLT_EPILOGUE_BGRADB:
      return "BGRADB";
    default:
      return "";
  }
}

bool adds_bias(cublasLtEpilogue_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }

bool writes_bias_gradient(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD || epilogue == CUBLASLT_EPILOGUE_BGRADA ||
         epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

bool uses_auxiliary(cublasLtEpilogue_t epilogue) { return (epilogue & 128) != 0; }

std::string describe(const Matmul& p) {
  std::string text = p.call + "(m " + std::to_string(p.m()) + " n " + std::to_string(p.n()) + " k " +
                     std::to_string(p.k()) + ", " + operation_name(p.op_a) + operation_name(p.op_b) + ", " +
                     type_name(p.a.type) + " -> " + type_name(p.d.type);
  if (p.compute != CUBLAS_COMPUTE_32F) text += ", " + compute_name(p.compute);
  if (p.d.batch_count != 1) text += ", batch " + std::to_string(p.d.batch_count);
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) text += ", epilogue " + epilogue_name(p.epilogue);
  return text + ")";
}

void enqueue_matmul(const Matmul& matmul, cudaStream_t stream) {
  const float alpha_now = matmul.scalars_on_device ? 0.0F : *matmul.alpha;
  const float beta_now = matmul.scalars_on_device ? 0.0F : *matmul.beta;
  first_product(kind_of(matmul, beta_now));
  enqueue(stream, describe(matmul), [p = matmul, alpha_now, beta_now] {
    const float alpha = p.scalars_on_device ? scalar(p, p.alpha, "alpha") : alpha_now;
    const float beta = p.scalars_on_device ? scalar(p, p.beta, "beta") : beta_now;
    if (p.multiprocessors >= 0) require_multiprocessors(p.multiprocessors, describe(p));
    if (p.workspace_bytes != 0) {  // whoever kept something there finds NaN
      device_writes(p.workspace, p.workspace_bytes, "workspace");
      std::memset(p.workspace, 0xFF, p.workspace_bytes);
    }
    for (std::int64_t batch = 0; batch < p.d.batch_count; ++batch) run_one(p, alpha, beta, batch);
    return true;
  });
}

}  // namespace emulator::cublas
