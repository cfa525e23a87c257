// Matrix products with their epilogues: fused by cuBLASLt, and by kernels of our own where it has none, be it for the
// shape (GELU wants OC and C divisible by 8) or because the heuristic finds no algorithm.
#include <tuple>

#include "test/cuda/cuda_fixture.h"

namespace train_gpt {
namespace {

struct Sizes {
  std::int64_t N, C, OC;
};
enum class Epilogues : std::uint8_t { fused, separate };
using Case = std::tuple<Precision, Sizes, Epilogues>;

class CudaMatmul : public testing::TestWithParam<Case> {
 protected:
  CudaMatmul() { emulator::settings().cublaslt_epilogues = std::get<2>(GetParam()) == Epilogues::fused; }
  ~CudaMatmul() override { emulator::settings().cublaslt_epilogues = true; }

  Precision precision_ = std::get<0>(GetParam());
  std::int64_t N_ = std::get<1>(GetParam()).N, C_ = std::get<1>(GetParam()).C, OC_ = std::get<1>(GetParam()).OC;
  CudaFixture cuda_{precision_, 1, N_, std::max(C_, OC_), 1};
  Device& device_ = *cuda_.device;
  LowBuffer in_{device_, random_floats(N_*C_, 1)}, weight_{device_, random_floats(OC_*C_, 2, 0.1F)},
      bias_{device_, random_floats(OC_, 3)}, dout_{device_, random_floats(N_*OC_, 4)},
      residual_{device_, random_floats(N_*OC_, 5)};
};

TEST_P(CudaMatmul, Forward) {
  const Results results = in_all_orders([&]() -> Results {
    LowBuffer out(device_, N_ * OC_), plain(device_, N_ * OC_), sum(device_, N_ * OC_),
        in_place(device_, residual_.values());
    device_.matmul_forward(out, in_, weight_, bias_, N_, C_, OC_);
    device_.matmul_forward(plain, in_, weight_, nullptr, N_, C_, OC_);
    device_.matmul_residual_forward(sum, in_, weight_, bias_, residual_, N_, C_, OC_);
    device_.matmul_residual_forward(in_place, in_, weight_, bias_, in_place, N_, C_, OC_);
    return {{"with bias", out.values()},
            {"plain", plain.values()},
            {"residual", sum.values()},
            {"in place", in_place.values()}};
  });
  reference::Values expected = reference::matmul(in_.rounded(), weight_.rounded(), bias_.rounded(), N_, C_, OC_);
  expect_precise(results[0].values, expected, precision_, "with bias");
  expect_precise(results[1].values, reference::matmul(in_.rounded(), weight_.rounded(), {}, N_, C_, OC_), precision_,
                 "plain");
  const reference::Values residual = residual_.rounded();
  for (std::size_t i = 0; i < residual.size(); ++i) expected[i] += residual[i];
  expect_precise(results[2].values, expected, precision_, "residual");
  EXPECT_TRUE(same_bits(results[3].values, results[2].values)) << "in place";
}

TEST_P(CudaMatmul, Gelu) {
  const Results results = in_all_orders([&]() -> Results {
    LowBuffer out(device_, N_ * OC_), pre(device_, N_ * OC_), alone(device_, N_ * OC_);
    device_.matmul_gelu_forward(out, pre, in_, weight_, bias_, N_, C_, OC_);
    device_.matmul_gelu_forward(alone, nullptr, in_, weight_, bias_, N_, C_, OC_);
    return {{"pre", pre.values()}, {"out", out.values()}, {"without pre", alone.values()}};
  });
  reference::Values expected = reference::matmul(in_.rounded(), weight_.rounded(), bias_.rounded(), N_, C_, OC_);
  expect_precise(results[0].values, expected, precision_, "pre");
  for (double& x : expected) x = reference::gelu(x);
  expect_precise(results[1].values, expected, precision_, "out", 0.003);
  EXPECT_TRUE(same_bits(results[2].values, results[1].values)) << "without pre";
}

TEST_P(CudaMatmul, BackwardInput) {
  LowBuffer pre(device_, random_floats(N_ * C_, 6, 3));
  const Results results = in_all_orders([&]() -> Results {
    LowBuffer din(device_, N_ * C_), dpre(device_, N_ * C_), in_place(device_, pre.values());
    device_.matmul_backward_input(din, dout_, weight_, N_, C_, OC_);
    device_.matmul_gelu_backward_input(dpre, dout_, weight_, pre, N_, C_, OC_);
    device_.matmul_gelu_backward_input(in_place, dout_, weight_, in_place, N_, C_, OC_);
    return {{"din", din.values()}, {"dpre", dpre.values()}, {"in place", in_place.values()}};
  });
  reference::Values expected = reference::matmul_backward_input(dout_.rounded(), weight_.rounded(), N_, C_, OC_);
  expect_precise(results[0].values, expected, precision_, "din");
  const reference::Values x = pre.rounded();
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] *= reference::gelu_derivative(x[i]);
  expect_precise(results[1].values, expected, precision_, "dpre", 0.003);
  EXPECT_TRUE(same_bits(results[2].values, results[1].values)) << "in place";
}

TEST_P(CudaMatmul, BackwardWeight) {
  const Floats dweight_before = random_floats(OC_ * C_, 7), dbias_before = random_floats(OC_, 8);
  const Floats unset(OC_ * C_, NAN);
  const Results results = in_all_orders([&]() -> Results {
    Buffer dweight(device_, dweight_before), dbias(device_, dbias_before), alone(device_, dweight_before);
    Buffer first(device_, unset), first_bias(device_, dbias_before), first_alone(device_, unset);
    device_.matmul_backward_weight(dweight, dbias, in_, dout_, N_, C_, OC_);
    device_.matmul_backward_weight(alone, nullptr, in_, dout_, N_, C_, OC_);
    device_.matmul_first_backward_weight(first, first_bias, in_, dout_, N_, C_, OC_);
    device_.matmul_first_backward_weight(first_alone, nullptr, in_, dout_, N_, C_, OC_);
    return {{"dweight", dweight.values()},        {"dbias", dbias.values()},
            {"without bias", alone.values()},     {"first dweight", first.values()},
            {"first dbias", first_bias.values()}, {"first without bias", first_alone.values()}};
  });
  reference::Values dweight = reference::matmul_backward_weight(dout_.rounded(), in_.rounded(), N_, C_, OC_);
  reference::Values dbias = doubles(dbias_before);
  const reference::Values dout = dout_.rounded();
  for (std::size_t i = 0; i < dout.size(); ++i) dbias[i % OC_] += dout[i];
  expect_close(results[3].values, dweight, 1e-5, "first dweight");
  expect_close(results[5].values, dweight, 1e-5, "first dweight without bias");
  expect_close(results[4].values, dbias, 1e-5, "first dbias");
  for (std::size_t i = 0; i < dweight.size(); ++i) dweight[i] += static_cast<double>(dweight_before[i]);
  expect_close(results[0].values, dweight, 1e-5, "dweight");
  expect_close(results[2].values, dweight, 1e-5, "dweight without bias");
  expect_close(results[1].values, dbias, 1e-5, "dbias");
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const Sizes& s = std::get<1>(info.param);
  return name_of(std::get<0>(info.param)) + "_N" + std::to_string(s.N) + "_C" + std::to_string(s.C) + "_OC" +
         std::to_string(s.OC) + (std::get<2>(info.param) == Epilogues::fused ? "" : "_separate");
}
const auto kPrecisions = testing::Values(Precision::fp32, Precision::bf16);
INSTANTIATE_TEST_SUITE_P(Small, CudaMatmul,
                         testing::Combine(kPrecisions,
                                          testing::Values(Sizes{1, 33, 7}, Sizes{3, 100, 129}, Sizes{65, 32, 128}),
                                          testing::Values(Epilogues::fused)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(SmallSeparate, CudaMatmul,
                         testing::Combine(kPrecisions, testing::Values(Sizes{3, 100, 129}, Sizes{65, 32, 128}),
                                          testing::Values(Epilogues::separate)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Large, CudaMatmul,
                         testing::Combine(kPrecisions,
                                          testing::Values(Sizes{1, 1, 1}, Sizes{65, 31, 200}, Sizes{63, 64, 192},
                                                          Sizes{200, 10, 800}, Sizes{600, 24, 33}),
                                          testing::Values(Epilogues::fused, Epilogues::separate)),
                         case_name);
#if defined(TRAIN_GPT_ON_CARD)
INSTANTIATE_TEST_SUITE_P(Card, CudaMatmul,
                         testing::Combine(kPrecisions,
                                          testing::Values(Sizes{64, 768, 3072}, Sizes{40, 1600, 6400},
                                                          Sizes{24, 4096, 4096}, Sizes{16, 768, 50304}),
                                          testing::Values(Epilogues::fused)),
                         case_name);
#endif

// Chunks of rows, whose addresses are rows of a buffer: equal products have equal bits, wherever their operands lie.
// (cuBLASLt promises no more: not that a chunk has the bits of the whole.)
TEST(CudaMatmulRows, OfABufferHaveTheBitsOfTheSameRowsAlone) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const std::int64_t N = 12, C = 36, OC = 20, rows = 3;
    CudaFixture cuda(precision, 1, N, C, 1);
    Device& device = *cuda.device;
    const Floats values = random_floats(N * C, 1);
    LowBuffer in(device, values), weight(device, random_floats(OC * C, 2)), parts(device, N * OC);
    for (std::int64_t row = 0; row < N; row += rows) {
      const std::int64_t bytes = element_size(precision);
      device.matmul_forward(static_cast<char*>(static_cast<void*>(parts)) + row * OC * bytes,
                            static_cast<char*>(static_cast<void*>(in)) + row * C * bytes, weight, nullptr, rows, C, OC);
    }
    const Floats together = parts.values();
    for (std::int64_t row = 0; row < N; row += rows) {
      LowBuffer alone(device, Floats(values.begin() + row * C, values.begin() + (row + rows) * C)),
          out(device, rows * OC);
      device.matmul_forward(out, alone, weight, nullptr, rows, C, OC);
      EXPECT_TRUE(same_bits(out.values(), Floats(together.begin() + row * OC, together.begin() + (row + rows) * OC)))
          << name_of(precision) << " row " << row;
    }
  }
}

// One plan serves every layer: its pointers are those of the call.
TEST(CudaMatmulPlans, UseTheBuffersOfEachCall) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const std::int64_t N = 8, C = 16, OC = 24;
    CudaFixture cuda(precision, 1, N, OC, 1);
    Device& device = *cuda.device;
    LowBuffer in(device, random_floats(N * C, 1)), weight(device, random_floats(OC * C, 2, 0.1F)),
        dout(device, random_floats(N * OC, 3));
    for (const int call : {4, 5}) {
      LowBuffer bias(device, random_floats(OC, call)), out(device, N * OC), gelu(device, N * OC), pre(device, N * OC),
          before(device, random_floats(N * C, 10 + call)), dpre(device, N * C);
      Buffer dweight(device, Floats(static_cast<std::size_t>(OC * C), 0.0F)),
          dbias(device, Floats(static_cast<std::size_t>(OC), static_cast<float>(call)));
      device.matmul_forward(out, in, weight, bias, N, C, OC);
      device.matmul_gelu_forward(gelu, pre, in, weight, bias, N, C, OC);
      device.matmul_gelu_backward_input(dpre, dout, weight, before, N, C, OC);
      device.matmul_backward_weight(dweight, dbias, in, dout, N, C, OC);
      const reference::Values expected = reference::matmul(in.rounded(), weight.rounded(), bias.rounded(), N, C, OC);
      expect_precise(out.values(), expected, precision, "out");
      expect_precise(pre.values(), expected, precision, "pre");
      reference::Values input = reference::matmul_backward_input(dout.rounded(), weight.rounded(), N, C, OC);
      const reference::Values x = before.rounded();
      for (std::size_t i = 0; i < x.size(); ++i) input[i] *= reference::gelu_derivative(x[i]);
      expect_precise(dpre.values(), input, precision, "dpre", 0.003);
      reference::Values sums(static_cast<std::size_t>(OC), call);
      const reference::Values d = dout.rounded();
      for (std::size_t i = 0; i < d.size(); ++i) sums[i % OC] += d[i];
      expect_close(dbias.values(), sums, 1e-5, "dbias");
    }
  }
}

}  // namespace
}  // namespace train_gpt
