#include "test/kernels/device_fixture.h"

namespace train_gpt {
namespace {

const AdamWConstants kConstants{0.9F, 0.95F, 1e-8F, 0.1F};
const AdamWScalars kScalars{3e-3F, 1 - 0.729F, 1 - 0.857375F, 0.5F};  // third step, gradients clipped to half

reference::AdamWStep step_in_double() {
  const auto d = [](float x) { return static_cast<double>(x); };
  return {d(kScalars.learning_rate),    d(kConstants.beta1),
          d(kConstants.beta2),          d(kConstants.eps),
          d(kConstants.weight_decay),   d(kScalars.beta1_correction),
          d(kScalars.beta2_correction), d(kScalars.gradient_scale)};
}

struct State {
  explicit State(std::int64_t n)
      : parameter(random_floats(n, 1)),
        m(random_floats(n, 2, 0.1F)),
        v(random_floats(n, 3)),
        gradient(random_floats(n, 4)) {
    for (float& x : v) x *= x;
  }
  Floats parameter, m, v, gradient;
};

class AdamWTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(AdamWTest, AgreesWithReferenceInPlaceOrNot) {
  const std::int64_t n = GetParam();
  CpuFixture cpu(2);
  Device& device = *cpu;
  const State state(n);
  const reference::AdamW expected = reference::adamw(doubles(state.parameter), doubles(state.m), doubles(state.v),
                                                     doubles(state.gradient), step_in_double());
  Buffer parameter(device, state.parameter), gradient(device, state.gradient), m(device, state.m), v(device, state.v),
      result(device, Floats(n)), low(device, Floats(n));
  device.adamw(result, low, m, v, parameter, gradient, &kScalars, kConstants, true, n);
  expect_close(result.values(), expected.parameter, 1e-6, "parameter");
  EXPECT_TRUE(same_bits(low.values(), result.values()));
  EXPECT_TRUE(same_bits(parameter.values(), state.parameter));
  EXPECT_TRUE(same_bits(m.values(), state.m));
  EXPECT_TRUE(same_bits(v.values(), state.v));

  Buffer m_later(device, state.m), v_later(device, state.v);
  device.adamw_moments(m_later, v_later, gradient, &kScalars, kConstants, n);
  device.adamw(parameter, nullptr, m, v, parameter, gradient, &kScalars, kConstants, false, n);
  EXPECT_TRUE(same_bits(parameter.values(), result.values()));
  EXPECT_TRUE(same_bits(m.values(), m_later.values()));
  EXPECT_TRUE(same_bits(v.values(), v_later.values()));
  expect_close(m.values(), expected.m, 1e-6, "m");
  expect_close(v.values(), expected.v, 1e-6, "v");
}

TEST_P(AdamWTest, SquaredSumsPerAtom) {
  const std::int64_t n = GetParam(), atoms = (n + kAtomElements - 1) / kAtomElements;
  CpuFixture cpu(2);
  Device& device = *cpu;
  const Floats values = random_floats(n, 1);
  std::vector<double> sums(static_cast<std::size_t>(atoms), NAN), expected(static_cast<std::size_t>(atoms));
  for (std::int64_t i = 0; i < n; ++i) {
    expected[i / kAtomElements] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  Buffer x(device, values);
  device.squared_sums(sums.data(), x, n);
  for (std::int64_t a = 0; a < atoms; ++a) EXPECT_NEAR(sums[a], expected[a], 1e-12 * expected[a]);
}

TEST_P(AdamWTest, AddZeroCopy) {
  const std::int64_t n = GetParam();
  CpuFixture cpu(2);
  Device& device = *cpu;
  const Floats a = random_floats(n, 1), b = random_floats(n, 2);
  Buffer x(device, a), y(device, b), z(device, a);
  device.add(x, y, n);
  const Floats sums = x.values();
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(sums[i], a[i] + b[i]);
  device.copy(z, y, n * 4);
  EXPECT_TRUE(same_bits(z.values(), b));
  device.zero(z, n * 4);
  EXPECT_TRUE(same_bits(z.values(), Floats(n)));
}

INSTANTIATE_TEST_SUITE_P(Elements, AdamWTest, testing::Values(1, 15, 1000, 65536, 65537, 300001));

TEST(Optimizer, BitsDoNotDependOnThreads) {
  const std::int64_t n = 3 * kAtomElements + 77;
  const State state(n);
  expect_same_bits_for_any_threads("optimizer", 1, [&](Device& device) {
    Buffer parameter(device, state.parameter), gradient(device, state.gradient), m(device, state.m), v(device, state.v);
    device.adamw(parameter, nullptr, m, v, parameter, gradient, &kScalars, kConstants, false, n);
    std::vector<double> sums(4);
    device.squared_sums(sums.data(), parameter, n);
    Floats all = parameter.values();
    Floats sum_bits(8);
    std::memcpy(sum_bits.data(), sums.data(), sizeof(double) * sums.size());
    all.insert(all.end(), sum_bits.begin(), sum_bits.end());
    return all;
  });
}

}  // namespace
}  // namespace train_gpt
