// One product with everything that can vary, run through cuBLASLt and through a double reference.
#pragma once

#include <cublasLt.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "test/emulator/cublas_matmul.h"
#include "test/emulator/tests/device_array.h"

namespace emulator::cublas {

struct ProductCase {
  std::int64_t m = 17, n = 5, k = 9;
  cudaDataType inputs = CUDA_R_32F;
  cudaDataType output = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  cublasLtOrder_t order_a = CUBLASLT_ORDER_COL, order_b = CUBLASLT_ORDER_COL, order_d = CUBLASLT_ORDER_COL;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int64_t batch = 1;
  float alpha = 1, beta = 0;
  bool in_place = false;  // C is D
};

inline std::string name_of(const ProductCase& c) {
  return std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) + " " + type_name(c.inputs) +
         "->" + type_name(c.output) + " " + operation_name(c.op_a) + operation_name(c.op_b) + " orders " +
         std::to_string(c.order_a) + std::to_string(c.order_b) + std::to_string(c.order_d) + " " +
         epilogue_name(c.epilogue) + " batch " + std::to_string(c.batch) + " alpha " + std::to_string(c.alpha) +
         " beta " + std::to_string(c.beta) + (c.in_place ? " in place" : "");
}

// A matrix (rows x columns, as stored) with some padding after each line, and none of it shared by the batch.
struct Stored {
  std::int64_t rows, columns, ld, stride;
  bool column_major;
  std::int64_t at(std::int64_t batch, std::int64_t i, std::int64_t j) const {
    return batch * stride + (column_major ? j * ld + i : i * ld + j);
  }
  std::int64_t elements(std::int64_t batch) const { return batch * stride; }
};
inline Stored stored(std::int64_t rows, std::int64_t columns, cublasLtOrder_t order, std::int64_t padding) {
  const bool column_major = order == CUBLASLT_ORDER_COL;
  const std::int64_t ld = (column_major ? rows : columns) + padding;
  return {rows, columns, ld, ld * (column_major ? columns : rows) + padding, column_major};
}

// The buffers and descriptors of a case; members may be changed before run() to break a rule.
class Product {
 public:
  explicit Product(const ProductCase& product_case);
  ~Product();
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  cublasStatus_t heuristic();  // fills algo
  cublasStatus_t run(cudaStream_t stream = nullptr);
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)), CUBLAS_STATUS_SUCCESS);
  }
  void check() const;  // D, auxiliary matrix and bias gradient against the reference

  const ProductCase test;
  Stored a, b, c, d, auxiliary;
  std::int64_t bias_length, bias_stride;
  std::vector<float> a_values, b_values, c_values, bias_values, auxiliary_values;
  DeviceArray device_a, device_b, device_c, device_d, device_bias, device_auxiliary, workspace;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout_a = nullptr, layout_b = nullptr, layout_c = nullptr, layout_d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t result{};
  const void* a_pointer;
  void* d_pointer;
  void* workspace_pointer;
  std::size_t workspace_bytes;

 private:
  struct Reference {
    double value, scale;  // scale: sum of the magnitudes, to which rounding errors relate
  };
  Reference result_before_epilogue(std::int64_t batch, std::int64_t i, std::int64_t j) const;
  double a_at(std::int64_t batch, std::int64_t i, std::int64_t l) const;
  double b_at(std::int64_t batch, std::int64_t l, std::int64_t j) const;
  void check_input_gradients() const;
};

// |found - expected| within the rounding of `type` and of fp32 sums of magnitude `scale`.
void expect_close(float found, double expected, double scale, cudaDataType type, const std::string& where);
// An input as the multiplier sees it.
double seen_by_multiplier(float value, cublasComputeType_t compute);

}  // namespace emulator::cublas
