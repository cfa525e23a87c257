#include "model/flops.h"

#include <gtest/gtest.h>

using namespace train_gpt;

namespace {

// GPT-2 124M at T = 1024: forward 12 x (24 x 768^2 + 2 x 768 x 1025) + 2 x 768 x 50257.
TEST(Flops, OfThePublishedSize) { EXPECT_EQ(flops_per_token(preset("d12"), 1024), 3 * 265956864LL); }

// Every multiply-add of a sequence, position by position.
TEST(Flops, CountsTheCausalHalf) {
  const ModelConfig model{.layers = 3, .heads = 3, .hidden = 24, .vocab = 131, .max_seq_len = 64};
  constexpr std::int64_t T = 17;
  std::int64_t forward = 0;
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      forward += 2 * 24 * (72 + 24 + 96) + 2 * 96 * 24;
      for (std::int64_t earlier = 0; earlier <= t; ++earlier) forward += 2 * 24 + 2 * 24;
    }
    forward += 2 * 24 * 131;
  }
  EXPECT_EQ(flops_per_token(model, T) * T, 3 * forward);
}

}  // namespace
