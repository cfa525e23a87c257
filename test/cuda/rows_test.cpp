// Operations on rows: embedding, LayerNorm.
#include <tuple>

#include "test/cuda/cuda_fixture.h"

namespace train_gpt {
namespace {

struct Sizes {
  std::int64_t B, T, C;
};
using Case = std::tuple<Precision, Sizes>;

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const Sizes& s = std::get<1>(info.param);
  return name_of(std::get<0>(info.param)) + "_B" + std::to_string(s.B) + "_T" + std::to_string(s.T) + "_C" +
         std::to_string(s.C);
}

class CudaRows : public testing::TestWithParam<Case> {
 protected:
  Precision precision_ = std::get<0>(GetParam());
  std::int64_t B_ = std::get<1>(GetParam()).B, T_ = std::get<1>(GetParam()).T, C_ = std::get<1>(GetParam()).C;
  std::int64_t N_ = B_ * T_;
  CudaFixture cuda_{precision_, B_, T_, C_, 1};
  Device& device_ = *cuda_.device;
};

TEST_P(CudaRows, Embedding) {
  const std::int64_t V = 11;
  const std::vector<std::int32_t> host_tokens = random_tokens(N_, V, 1);  // many repetitions
  const Tokens tokens(device_, host_tokens);
  LowBuffer wte(device_, random_floats(V * C_, 2)), wpe(device_, random_floats((T_ + 2) * C_, 3)),
      dout(device_, random_floats(N_ * C_, 4));
  const Floats before = random_floats((V + T_ + 2) * C_, 5);
  const Floats dwte_before(before.begin(), before.begin() + V * C_), dwpe_before(before.begin() + V * C_, before.end());
  const Results results = in_all_orders([&]() -> Results {
    LowBuffer out(device_, N_ * C_);
    Buffer dwte(device_, dwte_before), dwpe(device_, dwpe_before);
    device_.embedding_forward(out, tokens, wte, wpe, B_, T_, C_);
    device_.embedding_backward(dwte, dwpe, dout, tokens, B_, T_, C_);
    return {{"out", out.values()}, {"dwte", dwte.values()}, {"dwpe", dwpe.values()}};
  });
  const reference::Values e = wte.rounded(), p = wpe.rounded(), d = dout.rounded();
  reference::Values out(d.size()), dwte = doubles(dwte_before), dwpe = doubles(dwpe_before);
  for (std::int64_t n = 0; n < N_; ++n) {
    for (std::int64_t c = 0; c < C_; ++c) {
      out[n * C_ + c] = e[host_tokens[n] * C_ + c] + p[n % T_ * C_ + c];
      dwte[host_tokens[n] * C_ + c] += d[n * C_ + c];
      dwpe[n % T_ * C_ + c] += d[n * C_ + c];
    }
  }
  expect_precise(results[0].values, out, precision_, "out");
  expect_close(results[1].values, dwte, 1e-6, "dwte");
  expect_close(results[2].values, dwpe, 1e-6, "dwpe");
}

TEST_P(CudaRows, LayerNorm) {
  Floats in_values = random_floats(N_ * C_, 1, 2);
  for (float& x : in_values) x += 5;  // a mean that a one-pass variance would suffer from
  LowBuffer in(device_, in_values), weight(device_, random_floats(C_, 2)), bias(device_, random_floats(C_, 3)),
      dout(device_, random_floats(N_ * C_, 4)), residual(device_, random_floats(N_ * C_, 5));
  const Floats before = random_floats(C_, 6);
  const Results results = in_all_orders([&]() -> Results {
    LowBuffer out(device_, N_ * C_), din(device_, N_ * C_), with_residual(device_, N_ * C_),
        in_place(device_, residual.values());
    Buffer mean(device_, Floats(N_)), rstd(device_, Floats(N_)), dweight(device_, before), dbias(device_, before);
    device_.layernorm_forward(out, mean, rstd, in, weight, bias, N_, C_);
    device_.layernorm_backward_input(din, dout, nullptr, in, mean, rstd, weight, N_, C_);
    device_.layernorm_backward_input(with_residual, dout, residual, in, mean, rstd, weight, N_, C_);
    device_.layernorm_backward_input(in_place, dout, in_place, in, mean, rstd, weight, N_, C_);
    device_.layernorm_backward_weight(dweight, dbias, dout, in, mean, rstd, N_, C_);
    return {{"out", out.values()},
            {"mean", mean.values()},
            {"rstd", rstd.values()},
            {"din", din.values()},
            {"with residual", with_residual.values()},
            {"in place", in_place.values()},
            {"dweight", dweight.values()},
            {"dbias", dbias.values()}};
  });
  const reference::LayerNorm forward = reference::layernorm(in.rounded(), weight.rounded(), bias.rounded(), N_, C_);
  expect_precise(results[0].values, forward.out, precision_, "out");
  expect_close(results[1].values, forward.mean, 1e-6, "mean");
  expect_close(results[2].values, forward.rstd, 1e-5, "rstd");
  reference::LayerNormGradient gradient =
      reference::layernorm_backward(dout.rounded(), in.rounded(), weight.rounded(), N_, C_);
  const double floor = C_ == 2 ? 0.1 : 1e-6;  // of two elements: terms of order 1 that cancel
  expect_precise(results[3].values, gradient.din, precision_, "din", 0, floor);
  const reference::Values dresidual = residual.rounded();
  for (std::size_t i = 0; i < dresidual.size(); ++i) gradient.din[i] += dresidual[i];
  expect_precise(results[4].values, gradient.din, precision_, "with residual");
  EXPECT_TRUE(same_bits(results[5].values, results[4].values)) << "in place";
  for (std::int64_t c = 0; c < C_; ++c) {
    gradient.dweight[c] += static_cast<double>(before[c]);
    gradient.dbias[c] += static_cast<double>(before[c]);
  }
  expect_close(results[6].values, gradient.dweight, 1e-5, "dweight");
  expect_close(results[7].values, gradient.dbias, 1e-5, "dbias");
}

// make test takes these.
INSTANTIATE_TEST_SUITE_P(Small, CudaRows,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values(Sizes{1, 1, 2}, Sizes{3, 3, 17}, Sizes{1, 65, 40},
                                                          Sizes{1, 130, 64})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Large, CudaRows,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values(Sizes{3, 63, 100}, Sizes{3, 200, 129}, Sizes{1, 300, 768},
                                                          Sizes{2, 200, 33})),
                         case_name);
#if defined(TRAIN_GPT_ON_CARD)
INSTANTIATE_TEST_SUITE_P(Card, CudaRows,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values(Sizes{4, 1024, 768}, Sizes{2, 1000, 1600},
                                                          Sizes{1, 1024, 4096})),
                         case_name);
#endif

}  // namespace
}  // namespace train_gpt
