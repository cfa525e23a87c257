#include "pipeline/train/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace train_gpt {
namespace {

// Softmax at temperature 1: .4, .3, .2, .1.
const std::vector<float> kLogits = {std::log(.2F), std::log(.4F), std::log(.1F), std::log(.3F)};

std::set<std::int32_t> drawn(const Sampling& sampling) {
  std::set<std::int32_t> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(sample_token(kLogits, sampling, i / 1000.0));
  return ids;
}

// How many of 1000 evenly spaced numbers draw `id`.
int share(const Sampling& sampling, std::int32_t id) {
  int count = 0;
  for (int i = 0; i < 1000; ++i) count += sample_token(kLogits, sampling, (i + 0.5) / 1000.0) == id ? 1 : 0;
  return count;
}

TEST(Sampling, DrawsFromTheSoftmax) {
  EXPECT_EQ(share({}, 1), 400);
  EXPECT_EQ(share({}, 2), 100);
  EXPECT_EQ(drawn({.temperature = 0}), std::set<std::int32_t>{1});
  EXPECT_NEAR(share({.temperature = 0.5}, 1), 1000 * .16 / (.16 + .09 + .04 + .01), 1);
}

TEST(Sampling, TopKKeepsTheLikeliest) {
  EXPECT_EQ(drawn({.top_k = 1}), std::set<std::int32_t>{1});
  EXPECT_EQ(drawn({.top_k = 2}), (std::set<std::int32_t>{1, 3}));
  EXPECT_NEAR(share({.top_k = 2}, 1), 1000 * 4 / 7, 1);
  EXPECT_EQ(drawn({.top_k = 4}).size(), 4U);
  EXPECT_EQ(drawn({.top_k = 99}).size(), 4U);
  const std::vector<float> equal = {1, 1, 1};
  for (int i = 0; i < 10; ++i) EXPECT_LT(sample_token(equal, {.top_k = 2}, i / 10.0), 2) << "the first of equals";
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  EXPECT_EQ(drawn({.top_p = 0.3}), std::set<std::int32_t>{1}) << "the likeliest alone has .4";
  EXPECT_EQ(drawn({.top_p = 0.6}), (std::set<std::int32_t>{1, 3}));
  EXPECT_EQ(drawn({.top_p = 0.8}), (std::set<std::int32_t>{0, 1, 3}));
  EXPECT_EQ(drawn({.top_p = 1}).size(), 4U);
  EXPECT_EQ(drawn({.top_k = 2, .top_p = 0.5}), std::set<std::int32_t>{1}) << "of the two kept, the first has 4/7";
}

TEST(Sampling, TheFirstThatReachesExactlyPSuffices) {
  const std::vector<float> equal = {0, 0};
  EXPECT_EQ(sample_token(equal, {.top_p = 0.5}, 0.9), 0);
  EXPECT_EQ(sample_token(equal, {.top_p = 0.75}, 0.9), 1);
}

// Tolerances: five standard deviations.
TEST(Sampling, UniformNumbersAreUniformOverTokensAndSeeds) {
  constexpr int kCount = 10000;
  std::set<double> seen;
  double of_tokens = 0, of_seeds = 0;
  for (int k = 0; k < kCount; ++k) {
    const double x = uniform_number(3, k);
    EXPECT_GE(x, 0);
    EXPECT_LT(x, 1);
    seen.insert(x);
    of_tokens += x;
    of_seeds += uniform_number(static_cast<std::uint64_t>(k), 0);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kCount));
  EXPECT_NEAR(of_tokens / kCount, 0.5, 0.015);
  EXPECT_NEAR(of_seeds / kCount, 0.5, 0.015);
}

TEST(Sampling, WhatIsNotCutChangesNothing) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(sample_token(kLogits, {}, i / 100.0), sample_token(kLogits, {.top_k = 4, .top_p = 1}, i / 100.0));
  }
}

}  // namespace
}  // namespace train_gpt
