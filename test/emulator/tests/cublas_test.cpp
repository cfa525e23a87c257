// The general product of cuBLAS: Sgemm, GemmEx, strided batches, math and pointer modes, handles.
#include <cublas_v2.h>
#include <gtest/gtest.h>

#include <cmath>

#include "test/emulator/cublas_matmul.h"
#include "test/emulator/tests/cublas_case.h"

namespace emulator::cublas {
namespace {

class Cublas : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS); }
  void TearDown() override { ASSERT_EQ(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS); }

  // C(m, n) of one batch of column-major A(m, k) and B(k, n), both plain.
  static void check(const std::vector<float>& c, const std::vector<float>& a, const std::vector<float>& b, int m, int n,
                    int k, float alpha, float beta, const std::vector<float>& c_before, cudaDataType type,
                    cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < m; ++i) {
        double sum = 0;
        for (int l = 0; l < k; ++l) {
          sum += seen_by_multiplier(a[static_cast<std::size_t>(l * m + i)], compute) *
                 seen_by_multiplier(b[static_cast<std::size_t>(j * k + l)], compute);
        }
        const auto at = static_cast<std::size_t>(j * m + i);
        expect_close(c[at],
                     static_cast<double>(alpha) * sum + static_cast<double>(beta) * static_cast<double>(c_before[at]),
                     k, type, "C");
      }
    }
  }
  cublasHandle_t handle = nullptr;
};

constexpr int kM = 19, kN = 7, kK = 33;

TEST_F(Cublas, SgemmAddsToC) {
  const auto a = sample(kM * kK, 1), b = sample(kK * kN, 2), c = sample(kM * kN, 3);
  DeviceArray da(CUDA_R_32F, a), db(CUDA_R_32F, b), dc(CUDA_R_32F, c);
  const float alpha = 0.5F, beta = -2.0F;
  ASSERT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &alpha, static_cast<float*>(da.data()), kM,
                        static_cast<float*>(db.data()), kK, &beta, static_cast<float*>(dc.data()), kM),
            CUBLAS_STATUS_SUCCESS);
  check(dc.read(), a, b, kM, kN, kK, alpha, beta, c, CUDA_R_32F);
}

TEST_F(Cublas, MathModeAllowsTf32) {
  const auto a = sample(kM * kK, 1), b = sample(kK * kN, 2), c = sample(kM * kN, 3);
  DeviceArray da(CUDA_R_32F, a), db(CUDA_R_32F, b), dc(CUDA_R_32F, c);
  const float alpha = 1, beta = 0;
  ASSERT_EQ(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &alpha, static_cast<float*>(da.data()), kM,
                        static_cast<float*>(db.data()), kK, &beta, static_cast<float*>(dc.data()), kM),
            CUBLAS_STATUS_SUCCESS);
  check(dc.read(), a, b, kM, kN, kK, alpha, beta, c, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
}

TEST_F(Cublas, GemmExOnBf16WithScalarsOnTheDevice) {
  const auto a = sample(kM * kK, 1, CUDA_R_16BF), b = sample(kK * kN, 2, CUDA_R_16BF), c = sample(kM * kN, 3);
  DeviceArray da(CUDA_R_16BF, a), db(CUDA_R_16BF, b), dc(CUDA_R_32F, c), scalars(CUDA_R_32F, {2.0F, 1.0F});
  ASSERT_EQ(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  const auto* alpha = static_cast<const float*>(scalars.data());
  ASSERT_EQ(
      cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, alpha, da.data(), CUDA_R_16BF, kM, db.data(),
                   CUDA_R_16BF, kK, alpha + 1, dc.data(), CUDA_R_32F, kM, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      CUBLAS_STATUS_SUCCESS);
  check(dc.read(), a, b, kM, kN, kK, 2, 1, c, CUDA_R_32F);
}

TEST_F(Cublas, StridedBatchSharesAnOperand) {
  constexpr int kBatch = 3;
  const auto a = sample(kM * kK * kBatch, 1, CUDA_R_16BF), b = sample(kK * kN, 2, CUDA_R_16BF);
  const std::vector<float> c(kM * kN * kBatch, NAN);  // beta 0: C is not read
  DeviceArray da(CUDA_R_16BF, a), db(CUDA_R_16BF, b), dc(CUDA_R_16BF, c);
  const float alpha = 1, beta = 0;
  ASSERT_EQ(cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &alpha, da.data(), CUDA_R_16BF, kM,
                                       kM * kK, db.data(), CUDA_R_16BF, kK, 0, &beta, dc.data(), CUDA_R_16BF, kM,
                                       kM * kN, kBatch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  const auto found = dc.read();
  for (int batch = 0; batch < kBatch; ++batch) {
    check({found.begin() + batch * kM * kN, found.begin() + (batch + 1) * kM * kN},
          {a.begin() + batch * kM * kK, a.begin() + (batch + 1) * kM * kK}, b, kM, kN, kK, 1, 0,
          std::vector<float>(kM * kN, 0.0F), CUDA_R_16BF);
  }
}

TEST_F(Cublas, RefusesWhatTheDocumentationDoes) {
  DeviceArray x(CUDA_R_32F, 1024);
  auto* data = static_cast<float*>(x.data());
  const float one = 1;
  EXPECT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, data, 7, data + 64, 8, &one, data + 128, 8),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_NE(last_refusal().find("leading dimension 7"), std::string::npos) << last_refusal();
  EXPECT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, -1, &one, data, 8, data + 64, 8, &one, data + 128, 8),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, data, 8, data + 64, 8, &one, data + 32, 8),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_NE(last_refusal().find("overlap"), std::string::npos) << last_refusal();
  EXPECT_EQ(cublasSetWorkspace(handle, static_cast<char*>(x.data()) + 16, 64), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_NE(last_refusal().find("256"), std::string::npos) << last_refusal();
  cublasHandle_t dead = nullptr;
  ASSERT_EQ(cublasCreate(&dead), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasDestroy(dead), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSetStream(dead, nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
}

}  // namespace
}  // namespace emulator::cublas
