#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "model/optimizer.h"

namespace train_gpt {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& value, const std::string& right) {
  throw std::invalid_argument(option + " " + value + ": " + right);
}

// The progress of a decay from `start` to `end` at `step`, in [0, 1].
double progress(std::int64_t step, std::int64_t start, std::int64_t end) {
  if (step < start) return 0;
  if (step >= end) return 1;
  return static_cast<double>(step - start) / static_cast<double>(end - start);
}

std::int64_t wsd_decay_steps(const LearningRate& schedule) {
  const std::int64_t wanted = schedule.decay_steps < 0 ? (schedule.steps + 2) / 5 : schedule.decay_steps;
  return std::clamp<std::int64_t>(wanted, 0, std::max<std::int64_t>(0, schedule.steps - schedule.warmup_steps));
}

// Fraction of the peak after the warm-up.
double decayed_fraction(const LearningRate& schedule, std::int64_t step) {
  const double k = schedule.min_lr_fraction;
  switch (schedule.shape) {
    case LearningRateShape::constant:
      return 1;
    case LearningRateShape::cosine: {
      const double x = progress(step, schedule.warmup_steps, schedule.steps);
      return k + (1 - k) * 0.5 * (1 + std::cos(std::numbers::pi * x));
    }
    case LearningRateShape::linear:
      return 1 - (1 - k) * progress(step, schedule.warmup_steps, schedule.steps);
    case LearningRateShape::wsd: {
      const std::int64_t decay = wsd_decay_steps(schedule);
      if (decay == 0) return 1;
      return 1 - (1 - k) * progress(step, schedule.steps - decay, schedule.steps);
    }
  }
  return 1;
}

}  // namespace

LearningRateShape learning_rate_shape(const std::string& name) {
  if (name == "constant") return LearningRateShape::constant;
  if (name == "cosine") return LearningRateShape::cosine;
  if (name == "linear") return LearningRateShape::linear;
  if (name == "wsd") return LearningRateShape::wsd;
  refuse("--lr-schedule", name, "known are constant, cosine, linear, wsd");
}

const char* to_string(LearningRateShape shape) {
  switch (shape) {
    case LearningRateShape::constant:
      return "constant";
    case LearningRateShape::cosine:
      return "cosine";
    case LearningRateShape::linear:
      return "linear";
    case LearningRateShape::wsd:
      return "wsd";
  }
  return "";
}

void check(const LearningRate& schedule) {
  if (!(schedule.peak >= 0) || !std::isfinite(schedule.peak))
    refuse("--learning-rate", std::to_string(schedule.peak), "must be a number >= 0");
  if (schedule.steps < 0) refuse("--steps", std::to_string(schedule.steps), "must be >= 0");
  if (schedule.warmup_steps < 0) refuse("--warmup-steps", std::to_string(schedule.warmup_steps), "must be >= 0");
  if (!(schedule.min_lr_fraction >= 0 && schedule.min_lr_fraction <= 1))
    refuse("--min-lr-fraction", std::to_string(schedule.min_lr_fraction), "must be from 0 to 1");
}

double learning_rate(const LearningRate& schedule, std::int64_t step) {
  if (step < schedule.warmup_steps)
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  return schedule.peak * decayed_fraction(schedule, step);
}

}  // namespace train_gpt
