// Normally distributed numbers from a counter: number k of a seed is a pure function of (seed, k), so that any part of
// a sequence can be computed anywhere, in any order. Only IEEE operations (+ - * / sqrt) are used, so the bits are the
// same on every machine and with every math library.
#pragma once

#include <cstdint>

namespace train_gpt {

// out(n) = scale * the standard normal numbers first .. first + n - 1 of `seed` (Box and Muller 1958). |number| < 6.7.
void normal_numbers(float* out, std::uint64_t seed, std::uint64_t first, std::int64_t n, double scale);

}  // namespace train_gpt
