// Every documented limit of the products, refused by name.
#include <functional>

#include "test/emulator/settings.h"
#include "test/emulator/stream.h"
#include "test/emulator/tests/cublas_case.h"

namespace emulator::cublas {
namespace {

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
