#include "test/emulator/tests/cublas_case.h"

namespace emulator::cublas {
namespace {

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_derivative(double x) {  // by a difference: an independent check of the formula
  const double h = 1e-5;
  return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

cublasLtMatrixLayout_t layout(cudaDataType type, const Stored& matrix, std::int64_t batch) {
  cublasLtMatrixLayout_t descriptor = nullptr;
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&descriptor, type, static_cast<std::uint64_t>(matrix.rows),
                                       static_cast<std::uint64_t>(matrix.columns), matrix.ld),
            CUBLAS_STATUS_SUCCESS);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(descriptor, attribute, &value, sizeof(value)), CUBLAS_STATUS_SUCCESS);
  };
  set(CUBLASLT_MATRIX_LAYOUT_ORDER,
      static_cast<std::int32_t>(matrix.column_major ? CUBLASLT_ORDER_COL : CUBLASLT_ORDER_ROW));
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.stride);
  return descriptor;
}

std::int64_t multiple_of_eight(std::int64_t n) { return (n + 7) / 8 * 8; }

}  // namespace

void expect_close(float found, double expected, double scale, cudaDataType type, const std::string& where) {
  const double rounding = type == CUDA_R_16BF ? 1.0 / 256 : type == CUDA_R_16F ? 1.0 / 2048 : 1e-7;
  const double tolerance = rounding * std::abs(expected) + 3e-6 * scale + 1e-7;
  ASSERT_NEAR(static_cast<double>(found), expected, tolerance) << where;
}

double seen_by_multiplier(float value, cublasComputeType_t compute) {
  if (compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(value), &exponent);
    return std::ldexp(std::round(fraction * 2048), exponent - 11);
  }
  if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) return static_cast<double>(rounded(value, InputRounding::bf16));
  return static_cast<double>(value);
}

Product::Product(const ProductCase& product_case)
    : test(product_case),
      a(test.op_a == CUBLAS_OP_N ? stored(test.m, test.k, test.order_a, 3) : stored(test.k, test.m, test.order_a, 3)),
      b(test.op_b == CUBLAS_OP_N ? stored(test.k, test.n, test.order_b, 1) : stored(test.n, test.k, test.order_b, 1)),
      c(stored(test.m, test.n, test.order_d, test.in_place ? 5 : 2)),
      d(stored(test.m, test.n, test.order_d, 5)),
      auxiliary{test.m, test.n, multiple_of_eight(test.m), multiple_of_eight(test.m) * test.n, true},
      bias_length(test.epilogue == CUBLASLT_EPILOGUE_BGRADB ? test.n : test.m),
      bias_stride(bias_length + 2),
      a_values(sample(a.elements(test.batch), 1, test.inputs)),
      b_values(sample(b.elements(test.batch), 2, test.inputs)),
      c_values(sample(c.elements(test.batch), 3, test.output)),
      bias_values(sample(bias_stride * test.batch, 4, test.output)),
      auxiliary_values(sample(auxiliary.elements(test.batch), 5, test.output)),
      device_a(test.inputs, a_values),
      device_b(test.inputs, b_values),
      device_c(test.output, c_values),
      device_d(test.output, std::vector<float>(static_cast<std::size_t>(d.elements(test.batch)), 77.0F)),
      device_bias(test.output, bias_values),
      device_auxiliary(test.output, auxiliary_values),
      workspace(CUDA_R_32F, 4096),
      a_pointer(device_a.data()),
      d_pointer(test.in_place ? device_c.data() : device_d.data()),
      workspace_pointer(workspace.data()),
      workspace_bytes(workspace.bytes()) {
  EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulDescCreate(&operation, test.compute, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(test.op_a));
  set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<std::int32_t>(test.op_b));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(test.epilogue));
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, device_bias.data());
  set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, bias_stride);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, device_auxiliary.data());
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, auxiliary.ld);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, auxiliary.stride);
  layout_a = layout(test.inputs, a, test.batch);
  layout_b = layout(test.inputs, b, test.batch);
  layout_c = layout(test.output, c, test.batch);
  layout_d = layout(test.output, d, test.batch);
  EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  const std::uint64_t allowed = workspace_bytes;
  EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &allowed, 8),
            CUBLAS_STATUS_SUCCESS);
}

Product::~Product() {
  EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
  for (auto* descriptor : {layout_a, layout_b, layout_c, layout_d}) cublasLtMatrixLayoutDestroy(descriptor);
  cublasLtMatmulDescDestroy(operation);
  cublasLtDestroy(handle);
}

cublasStatus_t Product::heuristic() {
  int found = 0;
  return cublasLtMatmulAlgoGetHeuristic(handle, operation, layout_a, layout_b, layout_c, layout_d, preference, 1,
                                        &result, &found);
}

cublasStatus_t Product::run(cudaStream_t stream) {
  const float alpha = test.alpha, beta = test.beta;
  return cublasLtMatmul(handle, operation, &alpha, a_pointer, layout_a, device_b.data(), layout_b, &beta,
                        device_c.data(), layout_c, d_pointer, layout_d, &result.algo, workspace_pointer,
                        workspace_bytes, stream);
}

double Product::a_at(std::int64_t batch, std::int64_t i, std::int64_t l) const {
  return seen_by_multiplier(
      a_values[static_cast<std::size_t>(test.op_a == CUBLAS_OP_N ? a.at(batch, i, l) : a.at(batch, l, i))],
      test.compute);
}

double Product::b_at(std::int64_t batch, std::int64_t l, std::int64_t j) const {
  return seen_by_multiplier(
      b_values[static_cast<std::size_t>(test.op_b == CUBLAS_OP_N ? b.at(batch, l, j) : b.at(batch, j, l))],
      test.compute);
}

Product::Reference Product::result_before_epilogue(std::int64_t batch, std::int64_t i, std::int64_t j) const {
  Reference r{0, 0};
  for (std::int64_t l = 0; l < test.k; ++l) {
    const double term = static_cast<double>(test.alpha) * a_at(batch, i, l) * b_at(batch, l, j);
    r.value += term;
    r.scale += std::abs(term);
  }
  const double from_c =
      static_cast<double>(test.beta) * static_cast<double>(c_values[static_cast<std::size_t>(c.at(batch, i, j))]);
  return {r.value + from_c, r.scale + std::abs(from_c)};
}

void Product::check_input_gradients() const {
  const std::vector<float> bias_found = device_bias.read();
  for (std::int64_t batch = 0; batch < test.batch; ++batch) {
    for (std::int64_t i = 0; i < bias_length; ++i) {
      double sum = 0;
      for (std::int64_t l = 0; l < test.k; ++l) {
        const bool of_a = test.epilogue == CUBLASLT_EPILOGUE_BGRADA;
        const std::int64_t at = of_a ? (test.op_a == CUBLAS_OP_N ? a.at(batch, i, l) : a.at(batch, l, i))
                                     : (test.op_b == CUBLAS_OP_N ? b.at(batch, l, i) : b.at(batch, i, l));
        sum += static_cast<double>((of_a ? a_values : b_values)[static_cast<std::size_t>(at)]);  // not rounded to tf32
      }
      expect_close(bias_found[static_cast<std::size_t>(batch * bias_stride + i)], sum, static_cast<double>(test.k),
                   test.output, name_of(test) + " bias gradient");
    }
  }
}

void Product::check() const {
  const std::vector<float> found = test.in_place ? device_c.read() : device_d.read();
  const std::vector<float> auxiliary_found = device_auxiliary.read(), bias_found = device_bias.read();
  std::vector<double> row_sums(static_cast<std::size_t>(bias_stride * test.batch), 0.0);
  for (std::int64_t batch = 0; batch < test.batch; ++batch) {
    for (std::int64_t j = 0; j < test.n; ++j) {
      for (std::int64_t i = 0; i < test.m; ++i) {
        Reference r = result_before_epilogue(batch, i, j);
        if (adds_bias(test.epilogue))
          r.value += static_cast<double>(bias_values[static_cast<std::size_t>(batch * bias_stride + i)]);
        const auto at_auxiliary = static_cast<std::size_t>(auxiliary.at(batch, i, j));
        if (test.epilogue == CUBLASLT_EPILOGUE_GELU_AUX || test.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          expect_close(auxiliary_found[at_auxiliary], r.value, r.scale, test.output, name_of(test) + " auxiliary");
        }
        if ((test.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) r.value = gelu(r.value);
        if ((test.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) r.value = std::max(r.value, 0.0);
        if ((test.epilogue & 64) != 0) {
          r.value *= gelu_derivative(static_cast<double>(auxiliary_values[at_auxiliary]));
          row_sums[static_cast<std::size_t>(batch * bias_stride + i)] += r.value;
        }
        expect_close(found[static_cast<std::size_t>(d.at(batch, i, j))], r.value, r.scale + 1, test.output,
                     name_of(test) + " D(" + std::to_string(i) + ", " + std::to_string(j) + ")");
      }
    }
    if (!test.in_place) {  // nothing is written between the lines
      ASSERT_EQ(found[static_cast<std::size_t>(batch * d.stride + d.ld - 1)], 77.0F) << name_of(test);
    }
    if (test.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
      for (std::int64_t i = 0; i < test.m; ++i) {
        const auto at = static_cast<std::size_t>(batch * bias_stride + i);
        expect_close(bias_found[at], row_sums[at], static_cast<double>(test.n * test.k), test.output,
                     name_of(test) + " bias gradient");
      }
    }
  }
  if (test.epilogue == CUBLASLT_EPILOGUE_BGRADA || test.epilogue == CUBLASLT_EPILOGUE_BGRADB) check_input_gradients();
}

}  // namespace emulator::cublas
