#include "model/config.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

using namespace train_gpt;

namespace {

template <class Call>
std::string message(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

void expect_refused(const ModelConfig& config, const std::string& option, const std::string& remedy) {
  const std::string text = message([&] { check(config); });
  EXPECT_NE(text.find(option), std::string::npos) << text;
  EXPECT_NE(text.find(remedy), std::string::npos) << text;
}

TEST(ModelConfig, PresetsHaveThePublishedSizes) {
  // Parameters of the GPT-2 family (Radford et al. 2019), with 50257 tokens and 1024 positions.
  EXPECT_EQ(parameter_count(preset("d12")), 124439808);
  EXPECT_EQ(parameter_count(preset("d24")), 354823168);
  EXPECT_EQ(parameter_count(preset("d36")), 774030080);
  EXPECT_EQ(parameter_count(preset("d48")), 1557611200);
  const ModelConfig d6 = preset("d6");
  EXPECT_EQ(d6.layers, 6);
  EXPECT_EQ(d6.heads, 6);
  EXPECT_EQ(d6.hidden, 384);
  EXPECT_EQ(d6.padded_vocab(), 50304);
}

TEST(ModelConfig, UnknownPresetNamesTheKnownOnes) {
  const std::string text = message([] { preset("d13"); });
  for (const char* part : {"--model", "d13", "d6, d12, d24, d36, d48"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ModelConfig, ContradictorySizesAreRefusedWithARemedy) {
  ModelConfig config = preset("d6");
  EXPECT_NO_THROW(check(config));
  config.heads = 7;
  expect_refused(config, "--heads 7", "--heads 6 or 8");
  config.heads = 385;
  expect_refused(config, "--heads 385", "--heads 384");
  config.heads = 0;
  expect_refused(config, "--heads 0", "at least 1");
  config = preset("d6");
  config.layers = 0;
  expect_refused(config, "--layers 0", "at least 1");
  config.layers = 10000000;
  expect_refused(config, "--layers 10000000", "at most 65536");
  config = preset("d6");
  config.hidden = -384;
  expect_refused(config, "--hidden -384", "at least 1");
  config = preset("d6");
  config.vocab = 0;
  expect_refused(config, "--vocab 0", "at least 1");
  config.vocab = 1LL << 31;
  expect_refused(config, "--vocab 2147483648", "below");
  config.vocab = (1LL << 31) - 1;  // its padding would go beyond
  expect_refused(config, "--vocab 2147483647", "below 2147483520");
  config = preset("d6");
  config.max_seq_len = 0;
  expect_refused(config, "--max-seq-len 0", "at least 1");
  config = preset("d6");
  config.layers = 65536;
  config.heads = 1;
  config.hidden = 1 << 30;
  expect_refused(config, "--hidden 1073741824", "smaller");
}

TEST(ModelConfig, UnitsAreEmbeddingThenLayersThenHead) {
  ModelConfig config;
  config.layers = 2;
  config.vocab = 256;
  ASSERT_EQ(unit_count(config), 6);
  const UnitKind kinds[] = {UnitKind::embedding, UnitKind::attention, UnitKind::mlp,
                            UnitKind::attention, UnitKind::mlp,       UnitKind::head};
  const std::int64_t layers[] = {-1, 0, 0, 1, 1, -1};
  for (int u = 0; u < 6; ++u) {
    EXPECT_EQ(unit_kind(config, u), kinds[u]) << u;
    EXPECT_EQ(unit_layer(config, u), layers[u]) << u;
  }
}

// Shards cover the padded vocabulary without a gap, in whole blocks of 128, none more than a block wider than another
// or wider than 2048, none without a column that is not padding.
TEST(ModelConfig, ShardsFollowFromTheVocabulary) {
  for (const auto& [vocab, shards] : {std::pair<std::int64_t, int>{1, 1},
                                      {127, 1},
                                      {256, 1},
                                      {2048, 1},
                                      {2049, 2},
                                      {50257, 25},
                                      {128256, 63},
                                      {262144, 128}}) {
    ModelConfig config;
    config.layers = 2;
    config.vocab = vocab;
    ASSERT_EQ(head_shards(config), shards) << vocab;
    EXPECT_EQ(unit_count(config), 5 + shards);
    EXPECT_EQ(first_head_unit(config), 5);
    std::int64_t begin = 0, narrowest = 2048, widest = 0;
    for (int k = 0; k < shards; ++k) {
      EXPECT_EQ(unit_kind(config, 5 + k), UnitKind::head);
      EXPECT_EQ(unit_shard(config, 5 + k), k);
      const VocabularyShard shard = vocabulary_shard(config, k);
      EXPECT_EQ(shard.begin, begin);
      EXPECT_EQ(shard.width % 128, 0);
      EXPECT_GE(shard.columns, 1);
      EXPECT_EQ(shard.columns, k + 1 < shards ? shard.width : vocab - begin);
      narrowest = std::min(narrowest, shard.width);
      widest = std::max(widest, shard.width);
      begin += shard.width;
    }
    EXPECT_EQ(begin, config.padded_vocab());
    EXPECT_LE(widest, 2048);
    EXPECT_LE(widest - narrowest, 128);
    EXPECT_EQ(unit_shard(config, 4), -1);
  }
}

}  // namespace
