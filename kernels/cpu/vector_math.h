// exp and GELU for loops that the compiler vectorises: no branches, no calls, no tables. Every operation is a correctly
// rounded IEEE one (fused multiply-adds are named, the Makefile forbids the others), so that an element has the same
// bits in the body of a vector loop and in its scalar remainder.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace train_gpt {

// x in [low, high]; NaN stays NaN.
inline float clamp(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// exp(x) for x clamped to +-87, where neither exp(x) nor 1 / exp(x) leaves the normal range. Relative error < 1.2e-7.
// exp(x) = 2^n exp(r), |r| <= ln(2)/2 (plus rounding), exp(r) by interpolation at 7 Chebyshev nodes (error 2.6e-9).
inline float exponential(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer and leaves n in the low bits
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693147182F, kLn2Low = -1.90465421e-9F;
  x = clamp(x, -87.0F, 87.0F);
  const float shifted = std::fma(x, kLog2E, kRound);
  const float n = shifted - kRound;
  const float r = std::fma(-n, kLn2Low, std::fma(-n, kLn2High, x));
  float p = 0.00139411762F;
  p = std::fma(p, r, 0.00837518114F);
  p = std::fma(p, r, 0.0416663521F);
  p = std::fma(p, r, 0.166664149F);
  p = std::fma(p, r, 0.5F);
  p = std::fma(p, r, 1.0F);
  p = std::fma(p, r, 1.0F);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
}

// GELU, tanh form (Hendrycks and Gimpel 2016): x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3), written as
// x sigmoid(2u), which does not cancel for negative x.
inline constexpr float kGelu1 = 1.59576912F;    // 2 sqrt(2/pi)
inline constexpr float kGelu3 = 0.0713548162F;  // 2 sqrt(2/pi) 0.044715

inline float gelu(float x) {
  const float u2 = x * std::fma(kGelu3, x * x, kGelu1);
  return x / (1.0F + exponential(-u2));
}

// d gelu / dx = s + x s (1 - s) d(2u)/dx with s = sigmoid(2u). Beyond +-20 it is 1 or 0 to every digit.
inline float gelu_derivative(float x) {
  x = clamp(x, -20.0F, 20.0F);
  const float x2 = x * x;
  const float e = exponential(-x * std::fma(kGelu3, x2, kGelu1));
  const float s = 1.0F / (1.0F + e);
  const float slope = std::fma(3.0F * kGelu3, x2, kGelu1);
  return s * std::fma(x * slope, e * s, 1.0F);
}

}  // namespace train_gpt
