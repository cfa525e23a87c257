// AdamW, norms, conversions, memory and marks.
#include <chrono>
#include <thread>
#include <tuple>

#include "test/cuda/cuda_fixture.h"

namespace train_gpt {
namespace {

const AdamWConstants kConstants{0.9F, 0.95F, 1e-8F, 0.1F};
const AdamWScalars kScalars{3e-3F, 1 - 0.729F, 1 - 0.857375F, 0.5F};  // third step, gradients clipped to half

Floats squares(Floats values) {
  for (float& x : values) x *= x;
  return values;
}

using Case = std::tuple<Precision, std::int64_t>;
class CudaAdamW : public testing::TestWithParam<Case> {};

TEST_P(CudaAdamW, HasTheBitsOfTheCpuDevice) {
  const auto [precision, n] = GetParam();
  CudaFixture cuda(precision, 1, 1, 8, 1);
  CpuFixture cpu(1);
  const Floats p = random_floats(n, 1), m = random_floats(n, 2, 0.1F), v = squares(random_floats(n, 3)),
               g = random_floats(n, 4);
  const auto step = [&, count = n](Device& device) -> Results {
    Buffer parameter(device, p), moved(device, p), first(device, m), second(device, v), kept_first(device, m),
        kept_second(device, v), gradient(device, g);
    LowBuffer low(device, count);
    void* memory = device.allocate(sizeof kScalars);
    device.to_device(memory, &kScalars, sizeof kScalars);
    const auto* scalars = static_cast<const AdamWScalars*>(memory);
    device.adamw(moved, nullptr, kept_first, kept_second, parameter, gradient, scalars, kConstants, true, count);
    device.adamw_moments(kept_first, kept_second, gradient, scalars, kConstants, count);
    device.adamw(parameter, low, first, second, parameter, gradient, scalars, kConstants, false, count);
    Results results = {{"parameter", parameter.values()},
                       {"moved", moved.values()},
                       {"m", first.values()},
                       {"v", second.values()},
                       {"m kept", kept_first.values()},
                       {"v kept", kept_second.values()},
                       {"low", low.values()}};
    device.release(memory);
    return results;
  };
  const Results results = in_all_orders([&] { return step(*cuda.device); });
  const Results expected = step(*cpu);
  for (std::size_t i = 0; i + 1 < results.size(); ++i) {
    EXPECT_TRUE(same_bits(results[i].values, expected[i].values)) << results[i].name;
  }
  EXPECT_TRUE(same_bits(results[0].values, results[1].values));
  EXPECT_TRUE(same_bits(results[6].values, LowBuffer(*cuda.device, expected[0].values).values())) << "low";
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return name_of(std::get<0>(info.param)) + "_n" + std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Small, CudaAdamW,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values(std::int64_t{1}, std::int64_t{1028}, std::int64_t{2047})),
                         case_name);

TEST(CudaSquaredSums, OneDoublePerAtom) {
  CudaFixture cuda(Precision::fp32, 1, 1, 8, 1);
  Device& device = *cuda.device;
  for (const std::int64_t n : {std::int64_t{1}, std::int64_t{4097}, kAtomElements + 1027}) {
    const Floats values = random_floats(n, 1);
    Buffer x(device, values);
    const std::int64_t atoms = (n + kAtomElements - 1) / kAtomElements;
    const Results results = in_all_orders([&]() -> Results {
      Buffer sums(device, Floats(2 * atoms, NAN));
      device.squared_sums(reinterpret_cast<double*>(static_cast<float*>(sums)), x, n);
      return {{"sums", sums.values()}};
    });
    std::vector<double> sums(static_cast<std::size_t>(atoms));
    std::memcpy(sums.data(), results[0].values.data(), sums.size() * sizeof(double));
    for (std::int64_t a = 0; a < atoms; ++a) {
      double expected = 0;
      for (std::int64_t i = a * kAtomElements; i < std::min(n, (a + 1) * kAtomElements); ++i) {
        expected += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      }
      EXPECT_NEAR(sums[a], expected, 1e-12 * expected);
    }
  }
}

// Several tensors in one launch, and one after the other: among them one that ends within a block, one of a block, one
// of two atoms, and as many as a call takes.
class CudaTensors : public testing::TestWithParam<Precision> {
 protected:
  CudaTensors() {
    std::int64_t offset = 64;
    for (std::size_t i = 0; i < kTensorsAtOnce; ++i) {
      const std::int64_t elements = i == 1 ? 1024 : i == 2 ? kAtomElements + 5 : static_cast<std::int64_t>(1 + 7 * i);
      tensors_.push_back({.offset = offset, .elements = elements, .decays = i % 3 != 0});
      offset += (elements + 63) / 64 * 64 + 64;
    }
    elements_ = offset;
  }

  CudaFixture cuda_{GetParam(), 1, 1, 8, 1};
  Device& device_ = *cuda_.device;
  std::vector<Device::ArenaTensor> tensors_;
  std::int64_t elements_ = 0;
};

TEST_P(CudaTensors, AtOnceHaveTheBitsOfOneAfterTheOther) {
  const AdamWScalars host{1e-3F, 1 - 0.81F, 1 - 0.9025F, 0.7F};
  const AdamWConstants constants{0.9F, 0.95F, 1e-8F, 0.1F};
  Buffer scalar_buffer(device_, Floats(4, 0));
  auto* scalars = reinterpret_cast<AdamWScalars*>(static_cast<float*>(scalar_buffer));
  device_.to_device(scalars, &host, sizeof host);
  Floats squares = random_floats(elements_, 3);
  for (float& x : squares) x *= x;
  const auto run = [&](bool at_once) -> Results {
    Buffer p(device_, random_floats(elements_, 1)), m(device_, random_floats(elements_, 2)), v(device_, squares),
        g(device_, random_floats(elements_, 4)), sum(device_, random_floats(elements_, 5)),
        zeros(device_, random_floats(elements_, 6));
    LowBuffer copies(device_, Floats(static_cast<std::size_t>(elements_), 0));
    std::int64_t atoms = 0;
    std::vector<Device::Addition> additions;
    std::vector<Device::Zeros> zeroed;
    for (const Device::ArenaTensor& t : tensors_) {
      atoms += (t.elements + kAtomElements - 1) / kAtomElements;
      additions.push_back({sum + t.offset, g + t.offset, t.elements});
      zeroed.push_back({zeros + t.offset, t.elements});
    }
    Buffer norm(device_, Floats(static_cast<std::size_t>(2 * atoms), NAN));
    auto* sums = reinterpret_cast<double*>(static_cast<float*>(norm));
    if (at_once) {
      device_.adamw_all(p, copies, m, v, p, g, tensors_, scalars, constants, false);
      device_.adamw_moments_all(m, v, g, tensors_, scalars, constants);
      device_.squared_sums_all(sums, g, tensors_);
      device_.add_all(additions);
      device_.zero_all(zeroed);
    } else {
      device_.Device::adamw_all(p, copies, m, v, p, g, tensors_, scalars, constants, false);
      device_.Device::adamw_moments_all(m, v, g, tensors_, scalars, constants);
      device_.Device::squared_sums_all(sums, g, tensors_);
      device_.Device::add_all(additions);
      device_.Device::zero_all(zeroed);
    }
    return {{"parameters", p.values()}, {"copies", copies.values()}, {"m", m.values()},        {"v", v.values()},
            {"sums", norm.values()},    {"added", sum.values()},     {"zeros", zeros.values()}};
  };
  const Results expected = run(false), actual = run(true);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(same_bits(actual[i].values, expected[i].values)) << expected[i].name;
  }
}
INSTANTIATE_TEST_SUITE_P(Small, CudaTensors, testing::Values(Precision::fp32, Precision::bf16),
                         [](const auto& info) { return name_of(info.param); });

TEST(CudaConversions, RoundToNearestEven) {
  CudaFixture cuda(Precision::bf16, 1, 1, 8, 1);
  Device& device = *cuda.device;
  const Floats values = {0, 1, -1, 1.00390625F, 1.01171875F, 3.4e38F, INFINITY, 1e-40F, 0.1F};
  LowBuffer low(device, values);
  const Floats expected = {0, 1, -1, 1, 1.015625F, INFINITY, INFINITY, 9.18354962e-41F, 0.100097656F};
  const Floats got = low.values();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_FLOAT_EQ(got[i], expected[i]) << values[i];
}

TEST(CudaMemory, AddCopyAndZero) {
  CudaFixture cuda(Precision::fp32, 1, 1, 8, 1);
  Device& device = *cuda.device;
  for (const std::int64_t n : {1, 5, 1024, 1027}) {
    const Floats a = random_floats(n, 1), b = random_floats(n, 2);
    Buffer x(device, a), y(device, b), z(device, Floats(n, NAN));
    device.add(x, y, n);
    device.copy(z, y, n * 4);
    device.zero(y, n * 4);
    const Floats sum = x.values();
    for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(sum[i], a[i] + b[i]);
    EXPECT_TRUE(same_bits(z.values(), b));
    EXPECT_TRUE(same_bits(y.values(), Floats(n)));
  }
}

// More than the ring of pinned memory holds, from a buffer that changes as soon as the call returns.
TEST(CudaMemory, HostBuffersAreReusableAtOnce) {
  CudaFixture cuda(Precision::fp32, 1, 1, 8, 1);
  Device& device = *cuda.device;
  const std::int64_t n = 1'300'000;
  Floats host = random_floats(n, 1);
  const Floats before = host;
  Buffer x(device, Floats(n, NAN));
  device.to_device(x, host.data(), n * 4);
  std::fill(host.begin(), host.end(), 0.0F);
  EXPECT_TRUE(same_bits(x.values(), before));
}

TEST(CudaMemory, SaysWhenThereIsNone) {
  CudaFixture cuda(Precision::fp32, 1, 1, 8, 1);
  try {
    cuda.device->allocate(std::int64_t{1} << 60);
    FAIL() << "allocated an exbibyte";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos) << error.what();
  }
}

TEST(CudaMarks, AreMillisecondsOfTheHostsClock) {
  CudaFixture cuda(Precision::fp32, 1, 1, 8, 1);
  Device& device = *cuda.device;
  CpuFixture cpu(1);
  const double before = (*cpu).time_ms((*cpu).mark());
  const Device::Mark first = device.mark();
  device.synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  device.synchronize();  // a new base
  const Device::Mark second = device.mark();
  const double between = device.time_ms(second) - device.time_ms(first);
  const double after = (*cpu).time_ms((*cpu).mark());
  EXPECT_GE(between, 119);
  EXPECT_GE(device.time_ms(first), before - 0.1);
  EXPECT_LE(device.time_ms(second), after + 0.1);
  EXPECT_THROW(device.time_ms(second + 5), std::logic_error);
}

TEST(CudaMarks, WaitingCallsTheProgressHook) {
  CudaFixture cuda(Precision::fp32, 1, 1, 8, 1);
  int calls = 0;
  cuda.device->set_progress_hook([&] { ++calls; });
  Buffer x(*cuda.device, Floats(8));
  cuda.device->add(x, x, 8);
  x.values();
  Buffer mean(*cuda.device, Floats(1)), rstd(*cuda.device, Floats(1));
  cuda.device->layernorm_forward(x, mean, rstd, x, x, x, 1, 8);
  EXPECT_GE(calls, 1);
  cuda.device->set_progress_hook(nullptr);
}

}  // namespace
}  // namespace train_gpt
