// Drawing the next token.
#pragma once

#include <cstdint>
#include <span>

namespace train_gpt {

// Draws an id from softmax(logits / temperature); temperature 0: the likeliest (the first of equals). `uniform` is in
// [0, 1).
std::int32_t sample_token(std::span<const float> logits, double temperature, double uniform);

// The k-th uniform number of a seed, in [0, 1): a pure function, so that every rank draws the same.
double uniform_number(std::uint64_t seed, std::int64_t k);

}  // namespace train_gpt
