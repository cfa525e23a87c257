// Counts the model's arithmetic, from which the utilisation of a machine follows.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace train_gpt {

// Floating-point operations per token of a training step: matrix products and attention, a multiply-add as 2, the
// backward as twice the forward. Attention is causal and counted as such: position t attends to t + 1 positions, (T +
// 1) / 2 on average, about half of what a count over the full T x T square gives. Recomputation is not useful work and
// is not counted. Forward, per layer: 24 C^2 + 2 C (T + 1); head: 2 C V.
std::int64_t flops_per_token(const ModelConfig& config, std::int64_t seq_len);

}  // namespace train_gpt
