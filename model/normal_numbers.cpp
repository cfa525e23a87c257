#include "model/normal_numbers.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "data/splitmix64.h"

namespace train_gpt {
namespace {

// ln x for normal x > 0: x = 2^e f with f in [sqrt(1/2), sqrt(2)), ln f = 2 artanh((f-1)/(f+1)) by its series. The
// first omitted term is below 3e-13.
inline double natural_logarithm(double x) {
  constexpr std::uint64_t kSqrtHalfBits = 0x3FE6A09E667F3BCDULL;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t exponent_bits = (bits - kSqrtHalfBits) & 0xFFF0000000000000ULL;
  const double f = std::bit_cast<double>(bits - exponent_bits);
  const double e = static_cast<double>(static_cast<std::int64_t>(exponent_bits) >> 52);
  const double s = (f - 1.0) / (f + 1.0);
  const double z = s * s;
  double series = 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  series = series * z + 1.0;
  return e * std::numbers::ln2 + 2.0 * s * series;
}

// sin(pi t / 2) for |t| <= 1 by Taylor's series. The first omitted term is below 7e-10.
inline double sine_of_quarter_turns(double t) {
  const double x = t * (std::numbers::pi / 2);
  const double z = x * x;
  double series = 1.0 / 6227020800;
  series = series * z - 1.0 / 39916800;
  series = series * z + 1.0 / 362880;
  series = series * z - 1.0 / 5040;
  series = series * z + 1.0 / 120;
  series = series * z - 1.0 / 6;
  series = series * z + 1.0;
  return x * series;
}

inline double normal_number(std::uint64_t key, std::uint64_t k) {
  const std::uint64_t bits = splitmix64(key + k);
  // Two uniform numbers: radius in (0, 1], angle in [-2, 2) quarter turns, folded to [-1, 1] where the sine has the
  // same distribution.
  const double radius = (static_cast<double>(static_cast<std::int64_t>(bits >> 32)) + 1.0) * 0x1p-32;
  const double angle = static_cast<double>(static_cast<std::int64_t>(bits & 0xFFFFFFFFULL)) * 0x1p-30 - 2.0;
  const double folded = angle > 1.0 ? 2.0 - angle : (angle < -1.0 ? -2.0 - angle : angle);
  return std::sqrt(-2.0 * natural_logarithm(radius)) * sine_of_quarter_turns(folded);
}

}  // namespace

void normal_numbers(float* out, std::uint64_t seed, std::uint64_t first, std::int64_t n, double scale) {
  const std::uint64_t key = splitmix64(seed);
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(scale * normal_number(key, first + static_cast<std::uint64_t>(i)));
}

}  // namespace train_gpt
