// Operations on rows: embedding, LayerNorm, cross-entropy.
#include "test/kernels/device_fixture.h"

namespace train_gpt {
namespace {

struct LayerNormSizes {
  std::int64_t N, C;
};
class LayerNormTest : public testing::TestWithParam<LayerNormSizes> {};

TEST_P(LayerNormTest, AgreesWithReference) {
  const auto [N, C] = GetParam();
  CpuFixture cpu(2);
  Device& device = *cpu;
  Floats in_values = random_floats(N * C, 1, 2);
  for (float& x : in_values) x += 5;  // a mean that a one-pass variance would suffer from
  const Floats weight_values = random_floats(C, 2), bias_values = random_floats(C, 3),
               dout_values = random_floats(N * C, 4), residual_values = random_floats(N * C, 5);
  Buffer in(device, in_values), weight(device, weight_values), bias(device, bias_values), out(device, in_values),
      mean(device, Floats(N)), rstd(device, Floats(N)), dout(device, dout_values), din(device, in_values),
      residual(device, residual_values), dweight(device, weight_values), dbias(device, bias_values);
  const reference::LayerNorm expected =
      reference::layernorm(doubles(in_values), doubles(weight_values), doubles(bias_values), N, C);
  device.layernorm_forward(out, mean, rstd, in, weight, bias, N, C);
  // One column: x - mean is 0, but the rounding error of the mean is scaled by 1/sqrt(eps).
  expect_close(out.values(), expected.out, 1e-5, "out");
  expect_close(mean.values(), expected.mean, 1e-6, "mean");
  expect_close(rstd.values(), expected.rstd, 1e-4, "rstd");

  reference::LayerNormGradient gradient =
      reference::layernorm_backward(doubles(dout_values), doubles(in_values), doubles(weight_values), N, C);
  device.layernorm_backward_input(din, dout, nullptr, in, mean, rstd, weight, N, C);
  expect_close(din.values(), gradient.din, 1e-5, "din", 0.1);  // two columns: nearly all cancels
  device.layernorm_backward_input(din, dout, residual, in, mean, rstd, weight, N, C);
  device.layernorm_backward_input(residual, dout, residual, in, mean, rstd, weight, N, C);
  EXPECT_TRUE(same_bits(residual.values(), din.values()));
  for (std::size_t i = 0; i < gradient.din.size(); ++i) gradient.din[i] += static_cast<double>(residual_values[i]);
  expect_close(din.values(), gradient.din, 1e-5, "din with residual", 0.1);

  device.layernorm_backward_weight(dweight, dbias, dout, in, mean, rstd, N, C);
  for (std::int64_t c = 0; c < C; ++c) {
    gradient.dweight[c] += static_cast<double>(weight_values[c]);
    gradient.dbias[c] += static_cast<double>(bias_values[c]);
  }
  expect_close(dweight.values(), gradient.dweight, 1e-5, "dweight");
  expect_close(dbias.values(), gradient.dbias, 1e-5, "dbias");
}

INSTANTIATE_TEST_SUITE_P(Sizes, LayerNormTest,
                         testing::Values(LayerNormSizes{1, 2}, LayerNormSizes{1, 16}, LayerNormSizes{3, 17},
                                         LayerNormSizes{65, 100}, LayerNormSizes{130, 33}, LayerNormSizes{9, 769}));

TEST(LayerNorm, ConstantRowsStayFinite) {
  const std::int64_t N = 2, C = 40;
  CpuFixture cpu(1);
  Device& device = *cpu;
  Buffer in(device, Floats(N * C, 3e4F)), weight(device, Floats(C, 1)), bias(device, Floats(C, 0.5F)),
      out(device, Floats(N * C)), mean(device, Floats(N)), rstd(device, Floats(N)), din(device, Floats(N * C));
  device.layernorm_forward(out, mean, rstd, in, weight, bias, N, C);
  for (const float y : out.values()) EXPECT_EQ(y, 0.5F);
  device.layernorm_backward_input(din, out, nullptr, in, mean, rstd, weight, N, C);
  for (const float y : din.values()) EXPECT_NEAR(y, 0, 1e-3);
}

TEST(Embedding, ForwardAndBackward) {
  for (const auto& [B, T, C] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 5}, {3, 3, 7}, {2, 65, 70}}) {
    const std::int64_t V = 11, maxT = 70;
    CpuFixture cpu(2);
    Device& device = *cpu;
    const std::vector<std::int32_t> tokens = random_tokens(B * T, V, 1);  // many repetitions
    const Floats wte_values = random_floats(V * C, 2), wpe_values = random_floats(maxT * C, 3),
                 dout_values = random_floats(B * T * C, 4);
    Buffer wte(device, wte_values), wpe(device, wpe_values), out(device, dout_values), dout(device, dout_values),
        dwte(device, wte_values), dwpe(device, wpe_values);
    device.embedding_forward(out, tokens.data(), wte, wpe, B, T, C);
    const Floats y = out.values();
    reference::Values dwte_expected = doubles(wte_values), dwpe_expected = doubles(wpe_values);
    for (std::int64_t n = 0; n < B * T; ++n) {
      for (std::int64_t c = 0; c < C; ++c) {
        EXPECT_EQ(y[n * C + c], wte_values[tokens[n] * C + c] + wpe_values[n % T * C + c]);
        dwte_expected[tokens[n] * C + c] += static_cast<double>(dout_values[n * C + c]);
        dwpe_expected[n % T * C + c] += static_cast<double>(dout_values[n * C + c]);
      }
    }
    device.embedding_backward(dwte, dwpe, dout, tokens.data(), B, T, C);
    expect_close(dwte.values(), dwte_expected, 1e-6, "dwte");
    expect_close(dwpe.values(), dwpe_expected, 1e-6, "dwpe");
  }
}

TEST(Rows, BitsDoNotDependOnThreads) {
  const std::int64_t B = 3, T = 67, C = 130, N = B * T, V = 129, Vp = 256;
  expect_same_bits_for_any_threads("rows", T, [&](Device& device) {
    const std::vector<std::int32_t> tokens = random_tokens(N, V, 9);
    Buffer wte(device, random_floats(Vp * C, 1)), wpe(device, random_floats(T * C, 2)), x(device, Floats(N * C)),
        y(device, Floats(N * C)), mean(device, Floats(N)), rstd(device, Floats(N)), weight(device, random_floats(C, 3)),
        bias(device, random_floats(C, 4)), dx(device, random_floats(N * C, 6));
    device.embedding_forward(x, tokens.data(), wte, wpe, B, T, C);
    device.layernorm_forward(y, mean, rstd, x, weight, bias, N, C);
    device.layernorm_backward_weight(weight, bias, dx, x, mean, rstd, N, C);
    device.layernorm_backward_input(dx, y, dx, x, mean, rstd, weight, N, C);
    device.embedding_backward(wte, wpe, dx, tokens.data(), B, T, C);
    Floats all;
    for (Buffer* buffer : {&y, &mean, &rstd, &weight, &bias, &dx, &wte, &wpe}) {
      const Floats values = buffer->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  });
}

}  // namespace
}  // namespace train_gpt
