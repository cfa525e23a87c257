// The classifier's shards against the formula of the whole, in double.
#include "test/kernels/shard_chain.h"

namespace train_gpt {
namespace {

class ShardChain : public testing::TestWithParam<ShardSizes> {};

TEST_P(ShardChain, AgreesWithReference) {
  ShardSizes sizes = GetParam();
  const std::vector<std::int32_t> targets = targets_at_edges(sizes);
  sizes.rows = static_cast<std::int64_t>(targets.size());
  CpuFixture cpu(2);
  Device& device = *cpu;
  const Floats in_values = random_floats(sizes.rows * sizes.C, 1, 2), weight_values = classifier_rows(sizes, 2, 1);
  Buffer in(device, in_values), weight(device, weight_values);
  const ShardResults kept = run_shards(device, sizes, in, weight, targets.data(), 0.25F, /*recompute=*/false);
  const ExpectedShards expected = expected_shards(sizes, doubles(in_values), doubles(weight_values), targets, 0.25);
  expect_close(kept.losses, expected.losses, 5e-7, "losses");
  expect_close(kept.din, expected.din, 3e-6, "din");
  expect_close(kept.dweight, expected.dweight, 3e-6, "dweight");
  EXPECT_EQ(kept.losses.back(), 0);
  for (std::int64_t c = 0; c < sizes.C; ++c) EXPECT_EQ(kept.din[(sizes.rows - 1) * sizes.C + c], 0);
  for (std::int64_t i = sizes.V * sizes.C; i < sizes.Vp() * sizes.C; ++i) EXPECT_EQ(kept.dweight[i], 0);

  const ShardResults again = run_shards(device, sizes, in, weight, targets.data(), 0.25F, /*recompute=*/true);
  EXPECT_TRUE(same_bits(kept.validated, kept.losses));
  EXPECT_TRUE(same_bits(again.losses, kept.losses));
  EXPECT_TRUE(same_bits(again.din, kept.din));
  EXPECT_TRUE(same_bits(again.dweight, kept.dweight));
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, ShardChain,
                         testing::Values(ShardSizes{0, 9, 127, 128}, ShardSizes{0, 9, 128, 128},
                                         ShardSizes{0, 9, 129, 128}, ShardSizes{0, 33, 300, 128},
                                         ShardSizes{0, 5, 2500, 1280}, ShardSizes{0, 3, 50257, 2048}));

TEST(ShardChain, BitsDoNotDependOnThreads) {
  const ShardSizes sizes{70, 33, 300, 128};
  expect_same_bits_for_any_threads("shards", 128, [&](Device& device) {
    const std::vector<std::int32_t> targets = random_tokens(sizes.rows, sizes.V, 9);
    Buffer in(device, random_floats(sizes.rows * sizes.C, 1)), weight(device, classifier_rows(sizes, 2, 1));
    const ShardResults results = run_shards(device, sizes, in, weight, targets.data(), 0.5F, false);
    Floats all = results.losses;
    all.insert(all.end(), results.din.begin(), results.din.end());
    all.insert(all.end(), results.dweight.begin(), results.dweight.end());
    return all;
  });
}

// Scores of the size of the largest floats, padding of any value; the largest one in the first shard, or in the second.
TEST(ShardChain, ExtremeScoresStayFinite) {
  const std::vector<VocabularyShard> shards = {{0, 128, 128}, {128, 128, 100}};
  const std::vector<std::int32_t> targets = {5, 200, 5};
  CpuFixture cpu(1);
  Device& device = *cpu;
  Floats first(3 * 128, -1e30F), second(3 * 128, -1e30F);
  first[5] = 1e30F;
  second[128 + 72] = 1e30F;
  for (Floats* scores : {&first, &second}) std::fill(scores->begin() + 2 * 128, scores->end(), 1e38F);
  for (std::int64_t r = 0; r < 3; ++r) std::fill_n(second.begin() + r * 128 + 100, 28, 3e38F);
  Buffer largest(device, Floats(3)), sum(device, Floats(3)), at_target(device, Floats(3)), mixture(device, Floats(3)),
      losses(device, Floats(3)), then(device, Floats(3)), first_scores(device, first), second_scores(device, second);
  const SoftmaxFold fold{largest, sum, at_target, mixture};
  device.fold_scores(fold, first_scores, then, first_scores, targets.data(), shards[0], true, 3, 1);
  device.fold_scores(fold, second_scores, then, second_scores, targets.data(), shards[1], false, 3, 1);
  device.finish_cross_entropy(losses, fold, targets.data(), 1, 3, 1);
  device.score_gradients(second_scores, second_scores, then, largest, sum, targets.data(), 1, shards[1], 3);
  EXPECT_EQ(losses.values()[0], 0);
  EXPECT_EQ(losses.values()[1], 0);
  EXPECT_NEAR(losses.values()[2], std::log(228.0), 1e-6);
  for (Buffer* buffer : {&first_scores, &second_scores, &mixture})
    for (const float x : buffer->values()) EXPECT_TRUE(std::isfinite(x));
  EXPECT_EQ(second_scores.values()[128 + 72], 0);  // the target, of which the model is certain
}

}  // namespace
}  // namespace train_gpt
