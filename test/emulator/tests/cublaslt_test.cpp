// Every supported combination of types, transposes, epilogues, batches and memory orders against a double reference, on
// odd sizes. cublaslt_refusals_test.cpp has the documented limits.
#include <functional>

#include "test/emulator/settings.h"
#include "test/emulator/stream.h"
#include "test/emulator/tests/cublas_case.h"

namespace emulator::cublas {
namespace {

constexpr cublasLtEpilogue_t kEpilogues[] = {
    CUBLASLT_EPILOGUE_DEFAULT,     CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU,
    CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_BIAS,
    CUBLASLT_EPILOGUE_GELU_AUX,    CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
    CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,        CUBLASLT_EPILOGUE_BGRADB};

bool is_supported(const ProductCase& c) {
  const bool a_rows_adjacent = (c.op_a == CUBLAS_OP_N) == (c.order_a == CUBLASLT_ORDER_COL);
  const bool b_columns_adjacent = (c.op_b == CUBLAS_OP_N) != (c.order_b == CUBLASLT_ORDER_COL);
  switch (c.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return true;
    case CUBLASLT_EPILOGUE_BGRADA:
      return a_rows_adjacent && c.alpha == 1;
    case CUBLASLT_EPILOGUE_BGRADB:
      return b_columns_adjacent && c.alpha == 1 && c.order_d == CUBLASLT_ORDER_COL;
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
      return c.order_d == CUBLASLT_ORDER_COL && c.k > 1;
    default:
      return c.order_d == CUBLASLT_ORDER_COL;
  }
}

void run_case(const ProductCase& test) {
  Product product(test);
  const bool supported = is_supported(test);
  if (test.alpha != 1 && (test.epilogue == CUBLASLT_EPILOGUE_BGRADA || test.epilogue == CUBLASLT_EPILOGUE_BGRADB))
    return;
  ASSERT_EQ(product.heuristic() == CUBLAS_STATUS_SUCCESS, supported) << name_of(test);
  if (!supported) return;
  ASSERT_EQ(product.run(), CUBLAS_STATUS_SUCCESS) << name_of(test) << last_refusal();
  product.check();
}

struct Types {
  cudaDataType inputs, output;
  cublasComputeType_t compute;
};
constexpr Types kTypes[] = {{CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
                            {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
                            {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_16BF},
                            {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F},
                            {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
                            {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F},
                            {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F}};

class CublasLt : public testing::TestWithParam<Types> {
 protected:
  ProductCase base() const {
    ProductCase c;
    c.inputs = GetParam().inputs;
    c.output = GetParam().output;
    c.compute = GetParam().compute;
    return c;
  }
};

TEST_P(CublasLt, EveryTransposeAndEpilogue) {
  for (const auto op_a : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (const auto op_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      for (const auto epilogue : kEpilogues) {
        for (const std::int64_t batch : {1, 3}) {
          ProductCase c = base();
          c.op_a = op_a;
          c.op_b = op_b;
          c.epilogue = epilogue;
          c.batch = batch;
          c.beta = batch == 1 ? 0.0F : 0.5F;
          run_case(c);
        }
      }
    }
  }
}

TEST_P(CublasLt, OddSizes) {
  constexpr std::int64_t kSizes[][3] = {{1, 1, 1}, {1, 9, 2}, {16, 8, 16}, {33, 1, 70}, {15, 17, 3}};
  for (const auto& size : kSizes) {
    for (const auto epilogue : kEpilogues) {
      ProductCase c = base();
      c.m = size[0];
      c.n = size[1];
      c.k = size[2];
      c.op_b = epilogue == CUBLASLT_EPILOGUE_BGRADB ? CUBLAS_OP_T : CUBLAS_OP_N;
      c.epilogue = epilogue;
      run_case(c);
    }
  }
}

TEST_P(CublasLt, MemoryOrders) {
  for (int orders = 0; orders < 8; ++orders) {
    for (const auto op : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      for (const auto epilogue :
           {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
        ProductCase c = base();
        c.op_a = op;
        c.epilogue = epilogue;
        c.order_a = (orders & 1) != 0 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        c.order_b = (orders & 2) != 0 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        c.order_d = (orders & 4) != 0 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        c.beta = 2;
        run_case(c);
      }
    }
  }
}

TEST_P(CublasLt, ScalarsAndInPlace) {
  for (const float alpha : {0.0F, 1.0F, -0.25F}) {
    for (const float beta : {0.0F, 1.0F}) {
      for (const bool in_place : {false, true}) {
        ProductCase c = base();
        c.alpha = alpha;
        c.beta = beta;
        c.in_place = in_place;
        c.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
        run_case(c);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CublasLt, testing::ValuesIn(kTypes), [](const auto& types) {
  return type_name(types.param.inputs) + "_" + type_name(types.param.output) + "_" + std::to_string(types.index);
});

TEST(CublasLtStreams, AProductIsDeferredUntilItsStreamRuns) {
  Product product({});
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(product.heuristic(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(product.run(stream), CUBLAS_STATUS_SUCCESS);
  EXPECT_FALSE(stream_is_idle(stream));
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_TRUE(stream_is_idle(stream));
  product.check();
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(CublasLtStreams, WorkspaceIsOverwritten) {
  Product product({});
  product.workspace.write(std::vector<float>(4096, 1.0F));
  ASSERT_EQ(product.heuristic(), CUBLAS_STATUS_SUCCESS);
  EXPECT_GT(product.result.workspaceSize, 0U);
  ASSERT_EQ(product.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_TRUE(std::isnan(product.workspace.read()[0]));
}

// Three calls of one product, with the reduction schemes that the caller allows.
std::vector<std::vector<float>> three_times(const ProductCase& test, std::uint32_t schemes) {
  std::vector<std::vector<float>> results;
  for (int repeat = 0; repeat < 3; ++repeat) {
    Product product(test);
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(product.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                   &schemes, sizeof schemes),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(product.heuristic(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(product.run(), CUBLAS_STATUS_SUCCESS);
    results.push_back(product.device_d.read());
  }
  return results;
}

TEST(CublasLtStreams, EqualProductsGiveEqualBitsUnlessPartsAreAddedInPlace) {
  const ProductCase test{.m = 65, .n = 31, .k = 129, .inputs = CUDA_R_16BF, .output = CUDA_R_32F};
  for (const std::uint32_t schemes : {CUBLASLT_REDUCTION_SCHEME_NONE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                                      CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE}) {
    const auto results = three_times(test, schemes);
    EXPECT_EQ(results[1], results[0]) << schemes;
    EXPECT_EQ(results[2], results[0]) << schemes;
  }
  const auto in_place = three_times(test, CUBLASLT_REDUCTION_SCHEME_MASK);
  EXPECT_NE(in_place[1], in_place[0]);
}

}  // namespace
}  // namespace emulator::cublas
