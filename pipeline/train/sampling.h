// Drawing the next token.
#pragma once

#include <cstdint>
#include <span>

namespace train_gpt {

struct Sampling {
  double temperature = 1;  // 0: always the likeliest id (the first of equals)
  std::int64_t top_k = 0;  // only the k likeliest ids (Fan et al. 2018); 0: all
  double top_p = 1;        // only the fewest likeliest ids that together have this probability (Holtzman et al. 2020)
};

// Draws an id from softmax(logits / temperature), restricted to the k likeliest ids, then to the likeliest that have
// probability p together; among equally likely ids the first are kept. `uniform` is in [0, 1).
std::int32_t sample_token(std::span<const float> logits, const Sampling& sampling, double uniform);

// The k-th uniform number of a seed, in [0, 1): a pure function, so that every rank draws the same.
double uniform_number(std::uint64_t seed, std::int64_t k);

}  // namespace train_gpt
