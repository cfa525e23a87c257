#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/optimizer.h"

using namespace train_gpt;

namespace {

std::vector<double> table(const LearningRate& schedule, std::int64_t steps) {
  std::vector<double> rates;
  for (std::int64_t step = 0; step < steps; ++step) rates.push_back(learning_rate(schedule, step));
  return rates;
}

void expect_table(const LearningRate& schedule, const std::vector<double>& expected) {
  const std::vector<double> rates = table(schedule, static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(rates[i], expected[i], 1e-12) << "step " << i;
}

LearningRate schedule(LearningRateShape shape, std::int64_t steps, std::int64_t warmup, double fraction) {
  return {.shape = shape, .peak = 1.0, .steps = steps, .warmup_steps = warmup, .min_lr_fraction = fraction};
}

TEST(LearningRate, ConstantStaysAtThePeakAfterWarmup) {
  expect_table(schedule(LearningRateShape::constant, 5, 0, 0.1), {1, 1, 1, 1, 1, 1});
  expect_table(schedule(LearningRateShape::constant, 5, 4, 0.1), {0.25, 0.5, 0.75, 1, 1});
}

TEST(LearningRate, LinearFallsToTheFractionAtTheEnd) {
  expect_table(schedule(LearningRateShape::linear, 4, 0, 0.0), {1, 0.75, 0.5, 0.25, 0, 0});
  expect_table(schedule(LearningRateShape::linear, 6, 2, 0.5), {0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.5});
}

TEST(LearningRate, CosineFallsToTheFractionAtTheEnd) {
  const double quarter = 0.5 * (1 + std::sqrt(0.5));
  expect_table(schedule(LearningRateShape::cosine, 4, 0, 0.0), {1, quarter, 0.5, 1 - quarter, 0, 0});
  expect_table(schedule(LearningRateShape::cosine, 6, 2, 0.2), {0.5, 1, 1, 0.2 + 0.8 * quarter, 0.6});
}

TEST(LearningRate, WsdIsStableThenDecays) {
  LearningRate wsd = schedule(LearningRateShape::wsd, 10, 2, 0.0);  // a fifth of 10 steps decays
  expect_table(wsd, {0.5, 1, 1, 1, 1, 1, 1, 1, 1, 0.5, 0, 0});
  wsd.decay_steps = 4;
  expect_table(wsd, {0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25});
  wsd.decay_steps = 0;
  expect_table(wsd, {0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  wsd.decay_steps = 100;  // not into the warm-up
  expect_table(wsd, {0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125});
}

TEST(LearningRate, EveryStepTrainsWhateverTheLengths) {
  for (const LearningRateShape shape :
       {LearningRateShape::constant, LearningRateShape::cosine, LearningRateShape::linear, LearningRateShape::wsd})
    for (const std::int64_t steps : {1, 2, 3, 10, 100})
      for (const std::int64_t warmup : {std::int64_t{0}, std::int64_t{1}, steps - 1, steps, steps + 1, 3 * steps})
        for (const std::int64_t decay : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, steps, 2 * steps}) {
          LearningRate rate = schedule(shape, steps, warmup, 0.0);
          rate.decay_steps = decay;
          EXPECT_NO_THROW(check(rate));
          for (const double value : table(rate, steps)) {
            EXPECT_GT(value, 0) << steps << " steps, warm-up " << warmup << ", decay " << decay;
            EXPECT_LE(value, 1);
          }
          for (const double value : table(rate, 3 * steps + 5)) EXPECT_TRUE(std::isfinite(value));
        }
}

TEST(LearningRate, WarmupLongerThanTheRunOnlyRises) {
  expect_table(schedule(LearningRateShape::cosine, 4, 8, 0.0), {0.125, 0.25, 0.375, 0.5});
  expect_table(schedule(LearningRateShape::cosine, 4, 4, 0.0), {0.25, 0.5, 0.75, 1});
}

TEST(LearningRate, BadOptionsAreNamed) {
  const auto message = [](LearningRate rate) {
    try {
      check(rate);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  LearningRate rate;
  rate.steps = 10;
  EXPECT_EQ(message(rate), "accepted");
  rate.peak = NAN;
  EXPECT_NE(message(rate).find("--learning-rate nan"), std::string::npos);
  rate.peak = -1;
  EXPECT_NE(message(rate).find("--learning-rate -1"), std::string::npos);
  rate.peak = 1;
  rate.warmup_steps = -3;
  EXPECT_NE(message(rate).find("--warmup-steps -3"), std::string::npos);
  rate.warmup_steps = 0;
  rate.min_lr_fraction = 1.5;
  EXPECT_NE(message(rate).find("--min-lr-fraction 1.5"), std::string::npos);
  rate.min_lr_fraction = 1;
  EXPECT_EQ(message(rate), "accepted");
  rate.min_lr_fraction = 0;
  rate.steps = -1;
  EXPECT_NE(message(rate).find("--steps -1"), std::string::npos);

  EXPECT_EQ(learning_rate_shape("wsd"), LearningRateShape::wsd);
  try {
    learning_rate_shape("cosin");
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(std::string(error.what()), "--lr-schedule cosin: known are constant, cosine, linear, wsd");
  }
}

}  // namespace
