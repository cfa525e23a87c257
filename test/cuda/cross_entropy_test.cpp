// The classifier's shards in both precisions against the formula of the whole, in double.
#include <tuple>

#include "test/cuda/cuda_fixture.h"
#include "test/kernels/shard_chain.h"

namespace train_gpt {
namespace {

using ShardCase = std::tuple<Precision, ShardSizes>;
class CudaShardChain : public testing::TestWithParam<ShardCase> {};

TEST_P(CudaShardChain, AgreesWithReference) {
  const Precision precision = std::get<0>(GetParam());
  ShardSizes sizes = std::get<1>(GetParam());
  const std::vector<std::int32_t> host_targets = targets_at_edges(sizes);
  sizes.rows = static_cast<std::int64_t>(host_targets.size());
  CudaFixture cuda(precision, 1, sizes.rows, sizes.C, 1);
  Device& device = *cuda.device;
  const Tokens targets(device, host_targets);
  LowBuffer in(device, random_floats(sizes.rows * sizes.C, 1, 2)), weight(device, classifier_rows(sizes, 2, 1));
  const Results results = in_all_orders([&]() -> Results {
    const ShardResults kept = run_shards(device, sizes, in, weight, targets, 0.25F, /*recompute=*/false);
    const ShardResults again = run_shards(device, sizes, in, weight, targets, 0.25F, /*recompute=*/true);
    EXPECT_TRUE(same_bits(kept.validated, kept.losses));
    EXPECT_TRUE(same_bits(again.din, kept.din));
    EXPECT_TRUE(same_bits(again.dweight, kept.dweight));
    return {{"losses", kept.losses}, {"din", kept.din}, {"dweight", kept.dweight}};
  });
  const ExpectedShards expected = expected_shards(sizes, in.rounded(), weight.rounded(), host_targets, 0.25);
  expect_close(results[0].values, expected.losses, 1e-6, "losses");  // sums the exponentials before they are rounded
  // A row of din is a mean of rows of the weight whose parts are rounded to 2^-9 each.
  const double of_rounding = precision == Precision::bf16 ? 4e-3 : 0;
  expect_precise(results[1].values, expected.din, precision, "din", of_rounding);
  expect_precise(results[2].values, expected.dweight, precision, "dweight", of_rounding);
}

std::string shard_case_name(const testing::TestParamInfo<ShardCase>& info) {
  const ShardSizes& s = std::get<1>(info.param);
  return name_of(std::get<0>(info.param)) + "_V" + std::to_string(s.V) + "_C" + std::to_string(s.C);
}
INSTANTIATE_TEST_SUITE_P(Small, CudaShardChain,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values(ShardSizes{0, 8, 127, 128}, ShardSizes{0, 33, 300, 128})),
                         shard_case_name);
INSTANTIATE_TEST_SUITE_P(Large, CudaShardChain,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values(ShardSizes{0, 8, 129, 128}, ShardSizes{0, 8, 50257, 2048})),
                         shard_case_name);
#if defined(TRAIN_GPT_ON_CARD)
INSTANTIATE_TEST_SUITE_P(Card, CudaShardChain,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values(ShardSizes{0, 768, 50257, 2048},
                                                          ShardSizes{0, 4096, 50257, 2048})),
                         shard_case_name);
#endif

// A model that is certain of its targets: what is left of softmax - onehot lies far below the rounding of softmax.
TEST(CudaShardChain, ConfidentTargetsLoseNothingInBf16) {
  ShardSizes sizes{0, 8, 300, 128};
  const std::vector<std::int32_t> host_targets = {0, 127, 128, 255, 256, 299};
  sizes.rows = static_cast<std::int64_t>(host_targets.size());
  Floats in_values(static_cast<std::size_t>(sizes.rows * sizes.C), 0.0F);
  Floats weight_values = classifier_rows(sizes, 2, 0.25F);
  for (std::int64_t row = 0; row < sizes.rows; ++row) {  // scores of 16 at the targets and about 1 elsewhere
    in_values[row * sizes.C + row] = 4;
    for (std::int64_t c = 0; c < sizes.C; ++c) weight_values[host_targets[row] * sizes.C + c] = c == row ? 4.0F : 0.0F;
  }
  CudaFixture cuda(Precision::bf16, 1, sizes.rows, sizes.C, 1);
  Device& device = *cuda.device;
  const Tokens targets(device, host_targets);
  LowBuffer in(device, in_values), weight(device, weight_values);
  const ShardResults chain = run_shards(device, sizes, in, weight, targets, 1.0F, false);
  const ExpectedShards expected = expected_shards(sizes, in.rounded(), weight.rounded(), host_targets, 1.0);
  expect_close(chain.losses, expected.losses, 2e-2, "losses");  // of 1e-4, beside scores of 16 in fp32
  // Errors of one rounding of the small exponentials to bf16, and of the sums in fp32.
  for (std::size_t i = 0; i < expected.din.size(); ++i)
    EXPECT_NEAR(chain.din[i], expected.din[i], std::abs(expected.din[i]) / 128 + 2e-6) << i;
  for (std::size_t i = 0; i < expected.dweight.size(); ++i)
    EXPECT_NEAR(chain.dweight[i], expected.dweight[i], std::abs(expected.dweight[i]) / 128 + 2e-6) << i;
}

}  // namespace
}  // namespace train_gpt
