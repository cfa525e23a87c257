#include "test/kernels/device_fixture.h"

namespace train_gpt {
namespace {

struct Sizes {
  std::int64_t N, C, OC;
};
// One position, odd sizes, sizes that end inside a tile in both directions, an inner dimension longer than one block of
// the depth.
const Sizes kSizes[] = {{1, 1, 1},      {1, 33, 7},      {3, 100, 129}, {65, 31, 200},
                        {257, 65, 193}, {130, 900, 385}, {300, 10, 800}};

class MatmulTest : public testing::TestWithParam<Sizes> {
 protected:
  CpuFixture cpu_{2};
  Device& device_ = *cpu_;
  std::int64_t N_ = GetParam().N, C_ = GetParam().C, OC_ = GetParam().OC;
  Floats in_ = random_floats(N_ * C_, 1), weight_ = random_floats(OC_ * C_, 2, 0.1F), bias_ = random_floats(OC_, 3);
  Floats dout_ = random_floats(N_ * OC_, 4), residual_ = random_floats(N_ * OC_, 5);
};

TEST_P(MatmulTest, ForwardWithAndWithoutBias) {
  Buffer in(device_, in_), weight(device_, weight_), bias(device_, bias_), out(device_, dout_);
  device_.matmul_forward(out, in, weight, bias, N_, C_, OC_);
  expect_close(out.values(), reference::matmul(doubles(in_), doubles(weight_), doubles(bias_), N_, C_, OC_), 1e-5,
               "with bias");
  device_.matmul_forward(out, in, weight, nullptr, N_, C_, OC_);
  expect_close(out.values(), reference::matmul(doubles(in_), doubles(weight_), {}, N_, C_, OC_), 1e-5, "without bias");
}

TEST_P(MatmulTest, GeluKeepsPreActivationsOrNot) {
  reference::Values expected = reference::matmul(doubles(in_), doubles(weight_), doubles(bias_), N_, C_, OC_);
  Buffer in(device_, in_), weight(device_, weight_), bias(device_, bias_), out(device_, dout_), pre(device_, dout_);
  device_.matmul_gelu_forward(out, pre, in, weight, bias, N_, C_, OC_);
  expect_close(pre.values(), expected, 1e-5, "pre");
  for (double& x : expected) x = reference::gelu(x);
  expect_close(out.values(), expected, 1e-5, "out");
  Buffer alone(device_, dout_);
  device_.matmul_gelu_forward(alone, nullptr, in, weight, bias, N_, C_, OC_);
  EXPECT_TRUE(same_bits(alone.values(), out.values()));
}

TEST_P(MatmulTest, ResidualInPlaceOrNot) {
  reference::Values expected = reference::matmul(doubles(in_), doubles(weight_), doubles(bias_), N_, C_, OC_);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(residual_[i]);
  Buffer in(device_, in_), weight(device_, weight_), bias(device_, bias_), out(device_, dout_),
      both(device_, residual_), residual(device_, residual_);
  device_.matmul_residual_forward(out, in, weight, bias, residual, N_, C_, OC_);
  device_.matmul_residual_forward(both, in, weight, bias, both, N_, C_, OC_);
  expect_close(out.values(), expected, 1e-5, "out");
  EXPECT_TRUE(same_bits(both.values(), out.values()));
  EXPECT_TRUE(same_bits(residual.values(), residual_));
}

TEST_P(MatmulTest, BackwardInput) {
  Buffer din(device_, in_), dout(device_, dout_), weight(device_, weight_);
  device_.matmul_backward_input(din, dout, weight, N_, C_, OC_);
  expect_close(din.values(), reference::matmul_backward_input(doubles(dout_), doubles(weight_), N_, C_, OC_), 1e-5,
               "din");
}

TEST_P(MatmulTest, GeluBackwardInputInPlaceOrNot) {
  const Floats pre_values = random_floats(N_ * C_, 6, 3);
  reference::Values expected = reference::matmul_backward_input(doubles(dout_), doubles(weight_), N_, C_, OC_);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] *= reference::gelu_derivative(static_cast<double>(pre_values[i]));
  }
  Buffer dpre(device_, in_), dout(device_, dout_), weight(device_, weight_), pre(device_, pre_values);
  device_.matmul_gelu_backward_input(dpre, dout, weight, pre, N_, C_, OC_);
  expect_close(dpre.values(), expected, 1e-5, "dpre");
  device_.matmul_gelu_backward_input(pre, dout, weight, pre, N_, C_, OC_);
  EXPECT_TRUE(same_bits(pre.values(), dpre.values()));
}

TEST_P(MatmulTest, BackwardWeightAddsToWhatIsThere) {
  reference::Values dweight_expected = reference::matmul_backward_weight(doubles(dout_), doubles(in_), N_, C_, OC_);
  reference::Values dbias_expected(static_cast<std::size_t>(OC_));
  for (std::size_t i = 0; i < dweight_expected.size(); ++i) dweight_expected[i] += static_cast<double>(weight_[i]);
  for (std::int64_t o = 0; o < OC_; ++o) {
    dbias_expected[o] = static_cast<double>(bias_[o]);
    for (std::int64_t n = 0; n < N_; ++n) dbias_expected[o] += static_cast<double>(dout_[n * OC_ + o]);
  }
  Buffer dweight(device_, weight_), dbias(device_, bias_), in(device_, in_), dout(device_, dout_),
      alone(device_, weight_);
  device_.matmul_backward_weight(dweight, dbias, in, dout, N_, C_, OC_);
  expect_close(dweight.values(), dweight_expected, 1e-5, "dweight");
  expect_close(dbias.values(), dbias_expected, 1e-5, "dbias");
  device_.matmul_backward_weight(alone, nullptr, in, dout, N_, C_, OC_);
  EXPECT_TRUE(same_bits(alone.values(), dweight.values()));
}

TEST_P(MatmulTest, FirstBackwardWeightSetsWhateverWasThere) {
  const Floats zeros(weight_.size(), 0.0F), nans(weight_.size(), std::numeric_limits<float>::quiet_NaN());
  Buffer added(device_, zeros), set(device_, nans), added_bias(device_, bias_), set_bias(device_, bias_),
      in(device_, in_), dout(device_, dout_);
  device_.matmul_backward_weight(added, added_bias, in, dout, N_, C_, OC_);
  device_.matmul_first_backward_weight(set, set_bias, in, dout, N_, C_, OC_);
  EXPECT_TRUE(same_bits(set.values(), added.values()));
  EXPECT_TRUE(same_bits(set_bias.values(), added_bias.values()));
}

INSTANTIATE_TEST_SUITE_P(Sizes, MatmulTest, testing::ValuesIn(kSizes));

TEST(MatmulBits, DoNotDependOnThreads) {
  const std::int64_t N = 300, C = 420, OC = 1000;
  const Floats in = random_floats(N * C, 1), weight = random_floats(OC * C, 2), bias = random_floats(OC, 3),
               dout = random_floats(N * OC, 4);
  expect_same_bits_for_any_threads("matmul", 1, [&](Device& device) {
    Buffer x(device, in), w(device, weight), b(device, bias), dy(device, dout), y(device, dout), pre(device, dout),
        dx(device, in), dw(device, weight), db(device, bias);
    device.matmul_gelu_forward(y, pre, x, w, b, N, C, OC);
    device.matmul_residual_forward(y, x, w, b, y, N, C, OC);
    device.matmul_backward_input(dx, dy, w, N, C, OC);
    device.matmul_gelu_backward_input(dx, dy, w, dx, N, C, OC);
    device.matmul_backward_weight(dw, db, x, dy, N, C, OC);
    Floats all;
    for (Buffer* buffer : {&y, &pre, &dx, &dw, &db}) {
      const Floats values = buffer->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  });
}

}  // namespace
}  // namespace train_gpt
