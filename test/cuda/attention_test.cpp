#include <tuple>

#include "test/cuda/cuda_fixture.h"

namespace train_gpt {
namespace {

struct Sizes {
  std::int64_t B, T, C, NH;
};
using Case = std::tuple<Precision, Sizes>;

class CudaAttention : public testing::TestWithParam<Case> {};

TEST_P(CudaAttention, AgreesWithReference) {
  const Precision precision = std::get<0>(GetParam());
  const auto [B, T, C, NH] = std::get<1>(GetParam());
  CudaFixture cuda(precision, B, T, C, NH);
  Device& device = *cuda.device;
  LowBuffer qkv(device, random_floats(B * T * 3 * C, 1)), dout(device, random_floats(B * T * C, 2));
  const Results results = in_all_orders([&, b = B, t = T, c = C, nh = NH]() -> Results {
    LowBuffer out(device, b * t * c), dqkv(device, b * t * 3 * c);
    Buffer lse(device, Floats(b * nh * t, NAN));
    device.attention_forward(out, lse, qkv, b, t, c, nh);
    device.attention_backward(dqkv, dout, qkv, out, lse, b, t, c, nh);
    return {{"out", out.values()}, {"lse", lse.values()}, {"dqkv", dqkv.values()}};
  });
  const reference::Attention expected = reference::attention(qkv.rounded(), B, T, C, NH);
  expect_precise(results[0].values, expected.out, precision, "out", 0.002);
  expect_close(results[1].values, expected.lse, 1e-5, "lse");
  expect_precise(results[2].values, reference::attention_backward(dout.rounded(), qkv.rounded(), B, T, C, NH),
                 precision, "dqkv", 0.004);
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const Sizes& s = std::get<1>(info.param);
  return name_of(std::get<0>(info.param)) + "_B" + std::to_string(s.B) + "_T" + std::to_string(s.T) + "_NH" +
         std::to_string(s.NH) + "_HS" + std::to_string(s.C / s.NH);
}
// Sequences of one position, inside one block, one past a block (64 keys with heads of 128, 128 with heads of 64);
// heads of an odd size, of 64 and of 128.
INSTANTIATE_TEST_SUITE_P(Small, CudaAttention,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values(Sizes{1, 1, 64, 1}, Sizes{3, 3, 15, 3}, Sizes{3, 3, 128, 2},
                                                          Sizes{1, 65, 128, 2}, Sizes{1, 65, 128, 1})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(
    Large, CudaAttention,
    testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                     testing::Values(Sizes{1, 63, 64, 1}, Sizes{1, 63, 128, 1}, Sizes{3, 65, 256, 2},
                                     Sizes{1, 200, 64, 1}, Sizes{1, 34, 128, 1}, Sizes{1, 129, 64, 1},
                                     Sizes{1, 200, 128, 1}, Sizes{1, 129, 128, 1}, Sizes{1, 40, 256, 1},
                                     Sizes{2, 64, 36, 2}, Sizes{1, 260, 64, 1})),
    case_name);
#if defined(TRAIN_GPT_ON_CARD)
INSTANTIATE_TEST_SUITE_P(Card, CudaAttention,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values(Sizes{1, 1024, 768, 12}, Sizes{1, 1000, 1600, 25},
                                                          Sizes{1, 640, 4096, 32})),
                         case_name);
#endif

TEST(CudaAttentionLimits, ScoresOfThousandsStayFinite) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const std::int64_t B = 1, T = 70, C = 64, NH = 1;
    CudaFixture cuda(precision, B, T, C, NH);
    Device& device = *cuda.device;
    LowBuffer qkv(device, random_floats(B * T * 3 * C, 1, 60)), out(device, B * T * C),
        dout(device, random_floats(B * T * C, 2)), dqkv(device, B * T * 3 * C);
    Buffer lse(device, Floats(B * NH * T));
    device.attention_forward(out, lse, qkv, B, T, C, NH);
    device.attention_backward(dqkv, dout, qkv, out, lse, B, T, C, NH);
    for (const float x : out.values()) ASSERT_TRUE(std::isfinite(x));
    for (const float x : dqkv.values()) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(CudaAttentionLimits, RefusesHeadsThatAreTooLarge) {
  CudaFixture cuda(Precision::fp32, 1, 1, 257, 1);
  Device& device = *cuda.device;
  LowBuffer qkv(device, Floats(3 * 257)), out(device, 257);
  Buffer lse(device, Floats(1));
  EXPECT_THROW(device.attention_forward(out, lse, qkv, 1, 1, 257, 1), std::invalid_argument);
}

}  // namespace
}  // namespace train_gpt
