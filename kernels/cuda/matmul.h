// Matrix products by cuBLASLt: one cached plan (descriptors and algorithm) per shape and epilogue.
//
//   FLOPs  2 m n k. N = 8192, C = 768, OC = 3072: 39 GFLOP, 39 us at the 990 TFLOP/s of an H100 or H200 in bf16
//   (dense),
//          124 us at the 312 of an A100; 0.58 ms (67 TFLOP/s) and 2.0 ms (19.5) in fp32, for which TF32 is not used.
//   Bytes  e (m k + n k + m n); 68 MB in this example: 20 us of an H100's memory. Bound by arithmetic.
//
// cuBLASLt is column-major: a row-major (rows, columns) matrix is its (columns, rows) matrix, so products are computed
// transposed and nothing is copied. Algorithms that add partial sums in place, in whatever order, or in bf16 are
// not asked for, and alignments are taken from the shape: equal calls have equal bits, whatever ran before. No more is
// promised: rows computed in chunks may have other bits than the same rows in one product.
#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <map>

namespace train_gpt::cuda {

// D(m,n) = op(A) op(B) [+ D or another matrix], then the epilogue. Leading dimensions are the rows of what is stored.
struct Product {
  cublasOperation_t op_a = CUBLAS_OP_N;
  cublasOperation_t op_b = CUBLAS_OP_N;
  std::int64_t m = 0, n = 0, k = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  bool fp32_output = false;  // else the type of the inputs

  auto operator<=>(const Product&) const = default;
};

struct ProductBuffers {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  // added, scaled by 1; null: nothing is added
  void* d = nullptr;
  const void* bias = nullptr;      // (m)
  float* bias_gradient = nullptr;  // (n): sums of op(B) over k, stored
  void* auxiliary = nullptr;       // (m,n): what GELU was applied to
};

class MatrixProducts {
 public:
  explicit MatrixProducts(cudaDataType inputs) : inputs_(inputs) {}
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;

  // 256-byte aligned device memory; NVIDIA's advice for Hopper is 32 MiB.
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;
  void use_workspace(void* workspace) { workspace_ = workspace; }

  // Enqueues the product; false, and nothing done, where cuBLASLt has no algorithm for it. The answer depends on the
  // product alone.
  bool try_run(const Product& product, const ProductBuffers& buffers, cudaStream_t stream);
  // Throws std::runtime_error where cuBLASLt has none.
  void run(const Product& product, const ProductBuffers& buffers, cudaStream_t stream);

 private:
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    bool searched = false;
    bool found = false;
  };
  void open();
  void describe(Plan& plan, const Product& product);
  void find_algorithm(Plan& plan, const Product& product);

  cudaDataType inputs_;
  void* workspace_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  std::int32_t multiprocessors_ = 0;  // that products count on
  std::map<Product, Plan> plans_;
};

}  // namespace train_gpt::cuda
