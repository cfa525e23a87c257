// Every supported combination of types, transposes, epilogues, batches and memory orders against a double reference, on
// odd sizes; and every documented limit refused by name.
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

// ---- refusals ----------------------------------------------------------------------------------------------------

struct Broken {
  const char* name;
  ProductCase test;
  std::function<void(Product&)> break_rule;
  cublasStatus_t status;
  const char* says;
};

void set_layout(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, auto value) {
  ASSERT_EQ(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)), CUBLAS_STATUS_SUCCESS);
}

ProductCase with(cublasLtEpilogue_t epilogue) {
  ProductCase c;
  c.epilogue = epilogue;
  return c;
}

const std::vector<Broken>& broken_problems() {
  constexpr auto kInvalid = CUBLAS_STATUS_INVALID_VALUE;
  constexpr auto kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED;
  static const std::vector<Broken> cases = {
      {"bf16 inputs, fp16 output",
       {.inputs = CUDA_R_16BF, .output = CUDA_R_16F},
       nullptr,
       kUnsupported,
       "table of supported types"},
      {"fp32 inputs, bf16 output", {.output = CUDA_R_16BF}, nullptr, kUnsupported, "table of supported types"},
      {"tf32 compute on bf16",
       {.inputs = CUDA_R_16BF, .compute = CUBLAS_COMPUTE_32F_FAST_TF32},
       nullptr,
       kUnsupported,
       "FAST_TF32"},
      {"fp16 compute",
       {.inputs = CUDA_R_16F, .output = CUDA_R_16F, .compute = CUBLAS_COMPUTE_16F},
       nullptr,
       kUnsupported,
       "CUBLAS_COMPUTE_16F"},
      {"inner sizes differ",
       {},
       [](Product& p) { set_layout(p.layout_b, CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{8}); },
       kInvalid,
       "they do not fit"},
      {"D too narrow",
       {},
       [](Product& p) { set_layout(p.layout_d, CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{4}); },
       kInvalid,
       "they do not fit"},
      {"C and D differ",
       {},
       [](Product& p) { set_layout(p.layout_c, CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{4}); },
       kInvalid,
       "C and D must have the same rows"},
      {"no rows",
       {},
       [](Product& p) { set_layout(p.layout_a, CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{0}); },
       kInvalid,
       "both must be positive"},
      {"leading dimension of A",
       {},
       [](Product& p) { set_layout(p.layout_a, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{16}); },
       kInvalid,
       "it must be at least 17"},
      {"leading dimension 0 of D",
       {},
       [](Product& p) { set_layout(p.layout_d, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{0}); },
       kInvalid,
       "matrix D"},
      {"order COL32",
       {},
       [](Product& p) { set_layout(p.layout_a, CUBLASLT_MATRIX_LAYOUT_ORDER, std::int32_t{CUBLASLT_ORDER_COL32}); },
       kUnsupported,
       "order"},
      {"batch counts differ",
       {.batch = 2},
       [](Product& p) { set_layout(p.layout_b, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t{1}); },
       kInvalid,
       "batch counts"},
      {"batch of D overlaps",
       {.batch = 2},
       [](Product& p) { set_layout(p.layout_d, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t{10}); },
       kInvalid,
       "D's batch overlap"},
      {"bias with row-major D",
       {.order_d = CUBLASLT_ORDER_ROW, .epilogue = CUBLASLT_EPILOGUE_BIAS},
       nullptr,
       kUnsupported,
       "CUBLASLT_ORDER_ROW"},
      {"DGELU with row-major D",
       {.order_d = CUBLASLT_ORDER_ROW, .epilogue = CUBLASLT_EPILOGUE_DGELU},
       nullptr,
       kUnsupported,
       "CUBLASLT_ORDER_ROW"},
      {"bias of another type",
       {.inputs = CUDA_R_16BF, .output = CUDA_R_16BF, .epilogue = CUBLASLT_EPILOGUE_BIAS},
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{CUDA_R_32F}); },
       kInvalid,
       "BIAS_DATA_TYPE"},
      {"auxiliary of another type",
       {.inputs = CUDA_R_16BF, .output = CUDA_R_16BF, .epilogue = CUBLASLT_EPILOGUE_GELU_AUX},
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, std::int32_t{CUDA_R_32F}); },
       kInvalid,
       "AUX_DATA_TYPE"},
      {"auxiliary pointer missing", with(CUBLASLT_EPILOGUE_GELU_AUX),
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(nullptr)); }, kInvalid,
       "AUX_POINTER"},
      {"auxiliary leading dimension not a multiple of 8", with(CUBLASLT_EPILOGUE_GELU_AUX_BIAS),
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{17}); }, kInvalid, "divisible by 8"},
      {"auxiliary leading dimension too small", with(CUBLASLT_EPILOGUE_DGELU),
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{16}); }, kInvalid,
       "no less than the number of rows"},
      {"auxiliary batch stride",
       {.epilogue = CUBLASLT_EPILOGUE_GELU_AUX, .batch = 2},
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, std::int64_t{121}); },
       kInvalid,
       "AUX_BATCH_STRIDE"},
      {"bias gradients overlap",
       {.epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD, .batch = 2},
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, std::int64_t{0}); },
       kInvalid,
       "BIAS_BATCH_STRIDE"},
      {"BGRADA of a transposed A",
       {.op_a = CUBLAS_OP_T, .epilogue = CUBLASLT_EPILOGUE_BGRADA},
       nullptr,
       kUnsupported,
       "BGRADA"},
      {"BGRADB of a plain B", with(CUBLASLT_EPILOGUE_BGRADB), nullptr, kUnsupported, "BGRADB"},
      {"DGELU with k = 1", {.k = 1, .epilogue = CUBLASLT_EPILOGUE_DGELU}, nullptr, kUnsupported, "k = 1"},
      {"ReLU bit mask", with(CUBLASLT_EPILOGUE_RELU_AUX), nullptr, kUnsupported, "not emulated"},
      {"transposed C",
       {},
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_TRANSC, std::int32_t{CUBLAS_OP_T}); },
       kUnsupported,
       "TRANSC"},
      {"vector of alpha",
       {},
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, std::int32_t{CUBLASLT_POINTER_MODE_DEVICE_VECTOR}); },
       kUnsupported,
       "vectors of alpha"},
      {"lower half",
       {},
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_FILL_MODE, std::int32_t{CUBLAS_FILL_MODE_LOWER}); },
       kUnsupported,
       "FILL_MODE"},
  };
  return cases;
}

TEST(CublasLtRefuses, ProblemsByName) {
  for (const Broken& broken : broken_problems()) {
    Product product(broken.test);
    if (broken.break_rule) broken.break_rule(product);
    EXPECT_EQ(product.heuristic(), broken.status) << broken.name;
    EXPECT_NE(last_refusal().find(broken.says), std::string::npos) << broken.name << ": " << last_refusal();
    EXPECT_EQ(product.run(), broken.status) << broken.name;  // without the heuristic's word as well
    EXPECT_NE(last_refusal().find(broken.says), std::string::npos) << broken.name << ": " << last_refusal();
  }
}

TEST(CublasLtRefuses, EpiloguesWhenAskedTo) {
  settings().cublaslt_epilogues = false;
  EXPECT_EQ(Product(with(CUBLASLT_EPILOGUE_GELU_BIAS)).heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_NE(last_refusal().find("EMULATOR_EPILOGUES"), std::string::npos) << last_refusal();
  EXPECT_EQ(Product(with(CUBLASLT_EPILOGUE_BIAS)).heuristic(), CUBLAS_STATUS_SUCCESS);
  settings().cublaslt_epilogues = true;
}

TEST(CublasLtRefuses, CallsByName) {
  const Broken cases[] = {
      {"misaligned A",
       {.m = 18},
       [](Product& p) { p.a_pointer = static_cast<const char*>(p.device_a.data()) + 2; },
       {},
       "algo reads or writes matrix A in units of 4 bytes"},
      {"misaligned workspace",
       {},
       [](Product& p) { p.workspace_pointer = static_cast<char*>(p.workspace.data()) + 128; },
       {},
       "the workspace must be aligned to 256 bytes"},
      {"no workspace", {}, [](Product& p) { p.workspace_pointer = nullptr; }, {}, "the workspace is null"},
      {"workspace too small", {}, [](Product& p) { p.workspace_bytes = 0; }, {}, "the workspace has 0 bytes"},
      {"D is A", {.m = 9}, [](Product& p) { p.d_pointer = p.device_a.data(); }, {}, "D and A overlap"},
      {"D is the auxiliary matrix",
       with(CUBLASLT_EPILOGUE_DGELU),
       [](Product& p) { p.d_pointer = p.device_auxiliary.data(); },
       {},
       "D and the auxiliary matrix overlap"},
      {"in place, other layout",
       {.beta = 1},
       [](Product& p) { p.d_pointer = p.device_c.data(); },
       {},
       "Cdesc == Ddesc"},
      {"no bias",
       with(CUBLASLT_EPILOGUE_BIAS),
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(nullptr)); },
       {},
       "BIAS_POINTER"},
      {"algo of another epilogue",
       {},
       [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_BIAS}); },
       {},
       "algo was found for another problem"},
      {"algo uninitialised", {}, [](Product& p) { p.result = {}; }, {}, "not initialised by the heuristic"},
      {"A null", {}, [](Product& p) { p.a_pointer = nullptr; }, {}, "a matrix pointer is null"},
  };
  for (const Broken& broken : cases) {
    Product product(broken.test);
    ASSERT_EQ(product.heuristic(), CUBLAS_STATUS_SUCCESS) << broken.name << last_refusal();
    broken.break_rule(product);
    EXPECT_EQ(product.run(), CUBLAS_STATUS_INVALID_VALUE) << broken.name;
    EXPECT_NE(last_refusal().find(broken.says), std::string::npos) << broken.name << ": " << last_refusal();
  }
}

// Sizes whose lines are multiples of 16 bytes get a kernel with 16-byte accesses: a caller that promised aligned
// buffers (the default) may not pass others.
TEST(CublasLtRefuses, BuffersLessAlignedThanPromised) {
  ProductCase c{.m = 13, .inputs = CUDA_R_16BF, .output = CUDA_R_16BF};  // A has leading dimension 16
  Product product(c);
  ASSERT_EQ(product.heuristic(), CUBLAS_STATUS_SUCCESS);
  product.a_pointer = static_cast<const char*>(product.device_a.data()) + 4;
  EXPECT_EQ(product.run(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_NE(last_refusal().find("in units of 16 bytes"), std::string::npos) << last_refusal();
}

TEST(CublasLtRefuses, AttributesOfTheWrongSizeAndDeadDescriptors) {
  cublasLtMatmulDesc_t operation = nullptr;
  ASSERT_EQ(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  const std::int64_t value = 1;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &value, 8),
            CUBLAS_STATUS_INVALID_VALUE);
  std::int32_t transpose = CUBLAS_OP_T, found = 0;
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, 4),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulDescGetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &found, 4, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(found, CUBLAS_OP_T);
  EXPECT_EQ(written, 4U);
  ASSERT_EQ(cublasLtMatmulDescDestroy(operation), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(nullptr, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, 4),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST(CublasLtRangeDeathTest, BuffersThatAreTooSmallEndTheProcess) {
  Product product({});
  ASSERT_EQ(product.heuristic(), CUBLAS_STATUS_SUCCESS);
  product.a_pointer = static_cast<const char*>(product.device_a.data()) + 64;  // runs over the end
  EXPECT_DEATH(product.run(), "A of cublasLtMatmul");
  const std::vector<float> host(1000);
  product.a_pointer = host.data();
  EXPECT_DEATH(product.run(), "A of cublasLtMatmul");
}

}  // namespace
}  // namespace emulator::cublas
