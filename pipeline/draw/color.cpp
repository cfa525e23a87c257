// OKLCH (Ottosson 2020): equal lightness looks equally light in every hue, which HSL does not achieve.
#include "pipeline/draw/color.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

namespace train_gpt {
namespace {

int to_byte(double linear) {
  const double value = std::clamp(linear, 0.0, 1.0);
  const double gamma = value <= 0.0031308 ? 12.92 * value : 1.055 * std::pow(value, 1.0 / 2.4) - 0.055;
  return static_cast<int>(std::lround(255.0 * gamma));
}

// Lightness 0..1, chroma, hue in degrees -> "#rrggbb".
std::string oklch(double lightness, double chroma, double hue) {
  const double a = chroma * std::cos(hue * std::numbers::pi / 180.0);
  const double b = chroma * std::sin(hue * std::numbers::pi / 180.0);
  const auto cubed = [](double x) { return x * x * x; };
  const double l = cubed(lightness + 0.3963377774 * a + 0.2158037573 * b);
  const double m = cubed(lightness - 0.1055613458 * a - 0.0638541728 * b);
  const double s = cubed(lightness - 0.0894841775 * a - 1.2914855480 * b);
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x",
                to_byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s) & 255,
                to_byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s) & 255,
                to_byte(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s) & 255);
  return text;
}

}  // namespace

BarColor bar_color(char letter, int micro_batch) {
  constexpr double kGoldenAngle = 137.50776405;  // consecutive multiples never come close to each other
  const double hue = std::fmod(250.0 + kGoldenAngle * std::max(micro_batch, 0), 360.0);
  const double colorful = micro_batch < 0 ? 0.0 : 1.0;
  switch (letter) {
    case 'F':
      return {oklch(0.86, 0.085 * colorful, hue), "#1a1a1a"};
    case 'I':
      return {oklch(0.70, 0.12 * colorful, hue), "#111111"};
    case 'B':
      return {oklch(0.60, 0.12 * colorful, hue), "#ffffff"};
    case 'W':
      return {oklch(0.46, 0.10 * colorful, hue), "#ffffff"};
    case 'G':
      return {oklch(0.45, 0.02, 250.0), "#ffffff"};
    case 'U':
      return {oklch(0.55, 0.02, 250.0), "#ffffff"};
    default:
      return {oklch(0.36, 0.02, 250.0), "#ffffff"};
  }
}

std::string chunk_color(int chunk, int chunks) {
  return oklch(chunks <= 2 ? 0.25 : 0.25 + 0.45 * (chunk - 1) / (chunks - 1), 0.0, 0.0);
}

}  // namespace train_gpt
