// exp and GELU by themselves, and as the kernels' loops compute them.
#include "kernels/cpu/vector_math.h"

#include "test/kernels/device_fixture.h"

namespace train_gpt {
namespace {

TEST(VectorMath, ExponentialIsAccurateToTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (int i = -8700000; i <= 8700000; i += 37) {
    const float x = static_cast<float>(i) * 1e-5F;
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exponential(x)) - exact) / exact);
  }
  EXPECT_LT(worst, 1.2e-7);
  EXPECT_EQ(exponential(0), 1);
  EXPECT_TRUE(std::isnan(exponential(NAN)));
  for (const float x : {-1e38F, -INFINITY, 1e38F, INFINITY}) EXPECT_TRUE(std::isnormal(exponential(x))) << x;
}

// Forward through the kernel: one input of 1, weights x, so that out = gelu(x).
Floats gelu_by_device(Device& device, const Floats& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  Buffer one(device, {1}), weight(device, x), bias(device, Floats(x.size())), out(device, x);
  device.matmul_gelu_forward(out, nullptr, one, weight, bias, 1, 1, n);
  return out.values();
}

// Backward through the kernel: dout = 1 and weights 1, so that dpre = gelu'(x).
Floats gelu_derivative_by_device(Device& device, const Floats& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  Buffer one(device, {1}), weight(device, Floats(x.size(), 1)), pre(device, x), dpre(device, x);
  device.matmul_gelu_backward_input(dpre, one, weight, pre, 1, n, 1);
  return dpre.values();
}

TEST(Gelu, AgreesWithTheTanhForm) {
  CpuFixture cpu(1);
  Floats x;
  for (int i = -1200; i <= 1200; ++i) x.push_back(static_cast<float>(i) * 0.01F);
  const Floats y = gelu_by_device(*cpu, x), dy = gelu_derivative_by_device(*cpu, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto exact_x = static_cast<double>(x[i]);
    EXPECT_NEAR(static_cast<double>(y[i]), reference::gelu(exact_x), 4e-7 * std::max(1.0, std::abs(exact_x))) << x[i];
    EXPECT_NEAR(static_cast<double>(dy[i]), reference::gelu_derivative(exact_x), 5e-7) << x[i];
  }
}

TEST(Gelu, ExtremesAreExact) {
  CpuFixture cpu(1);
  const Floats x = {-1e30F, -100, -20, 0, 20, 100, 1e30F};
  const Floats y = gelu_by_device(*cpu, x), dy = gelu_derivative_by_device(*cpu, x);
  const Floats derivative = {0, 0, 0, 0.5F, 1, 1, 1};
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(y[i], std::max(x[i], 0.0F), 1e-6F) << x[i];
    EXPECT_NEAR(dy[i], derivative[i], 1e-6F) << x[i];
  }
}

// An element in the scalar remainder of a vector loop has the bits that it has in the loop's body.
TEST(Gelu, BitsDoNotDependOnThePlaceInAVector) {
  CpuFixture cpu(1);
  const Floats x = random_floats(70, 1, 3);
  const Floats whole = gelu_by_device(*cpu, x), whole_derivative = gelu_derivative_by_device(*cpu, x);
  for (std::size_t begin = 0; begin < x.size(); begin += 3) {
    for (const std::size_t length : {1, 2, 7, 9, 17, 33}) {
      const std::size_t end = std::min(x.size(), begin + length);
      const auto part = [&](const Floats& of) { return Floats(of.begin() + begin, of.begin() + end); };
      EXPECT_TRUE(same_bits(gelu_by_device(*cpu, part(x)), part(whole)));
      EXPECT_TRUE(same_bits(gelu_derivative_by_device(*cpu, part(x)), part(whole_derivative)));
    }
  }
}

}  // namespace
}  // namespace train_gpt
