// The references' gradients against central differences of their forwards, in double.
#include "test/kernels/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace train_gpt::reference {
namespace {

Values random_values(Index n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Values values(n);
  for (double& x : values) x = normal(generator);
  return values;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `gradient` against (f(x + h) - f(x - h)) / 2h in every element of x.
void expect_gradient(const Values& gradient, Values x, const std::function<double(const Values&)>& f,
                     const std::string& what) {
  constexpr double h = 1e-5;
  ASSERT_EQ(gradient.size(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + h;
    const double above = f(x);
    x[i] = kept - h;
    const double below = f(x);
    x[i] = kept;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * h), 1e-7 * std::max(1.0, std::abs(gradient[i])))
        << what << ' ' << i;
  }
}

TEST(Reference, LayerNorm) {
  const Index N = 3, C = 5;
  const Values in = random_values(N * C, 1), weight = random_values(C, 2), bias = random_values(C, 3),
               dout = random_values(N * C, 4);
  const LayerNormGradient gradient = layernorm_backward(dout, in, weight, N, C);
  expect_gradient(
      gradient.din, in, [&](const Values& x) { return dot(dout, layernorm(x, weight, bias, N, C).out); }, "in");
  expect_gradient(
      gradient.dweight, weight, [&](const Values& w) { return dot(dout, layernorm(in, w, bias, N, C).out); }, "weight");
  expect_gradient(
      gradient.dbias, bias, [&](const Values& b) { return dot(dout, layernorm(in, weight, b, N, C).out); }, "bias");
}

TEST(Reference, Gelu) {
  for (double x = -6; x <= 6; x += 0.37) {
    EXPECT_NEAR(gelu_derivative(x), (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5, 1e-9) << x;
  }
}

TEST(Reference, Matmul) {
  const Index N = 3, C = 4, OC = 5;
  const Values in = random_values(N * C, 1), weight = random_values(OC * C, 2), bias = random_values(OC, 3),
               dout = random_values(N * OC, 4);
  expect_gradient(
      matmul_backward_input(dout, weight, N, C, OC), in,
      [&](const Values& x) { return dot(dout, matmul(x, weight, bias, N, C, OC)); }, "in");
  expect_gradient(
      matmul_backward_weight(dout, in, N, C, OC), weight,
      [&](const Values& w) { return dot(dout, matmul(in, w, bias, N, C, OC)); }, "weight");
}

TEST(Reference, Attention) {
  const Index B = 2, T = 4, C = 6, NH = 2;
  const Values qkv = random_values(B * T * 3 * C, 1), dout = random_values(B * T * C, 2);
  expect_gradient(
      attention_backward(dout, qkv, B, T, C, NH), qkv,
      [&](const Values& x) { return dot(dout, attention(x, B, T, C, NH).out); }, "qkv");
}

TEST(Reference, CrossEntropy) {
  const Index rows = 3, V = 6, Vp = 8;
  const std::vector<std::int32_t> targets = {5, -1, 0};
  const Values logits = random_values(rows * Vp, 1);
  expect_gradient(
      cross_entropy(logits, targets, 0.7, rows, V, Vp).dlogits, logits,
      [&](const Values& x) {
        double sum = 0;
        for (const double loss : cross_entropy(x, targets, 0.7, rows, V, Vp).losses) sum += 0.7 * loss;
        return sum;
      },
      "logits");
}

}  // namespace
}  // namespace train_gpt::reference
