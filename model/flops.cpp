#include "model/flops.h"

namespace train_gpt {

std::int64_t flops_per_token(const ModelConfig& config, std::int64_t seq_len) {
  const std::int64_t C = config.hidden;
  const std::int64_t products = 2 * (3 + 1 + 4 + 4) * C * C;     // QKV, projection, up, down
  const std::int64_t attention = 2 * 2 * C * (seq_len + 1) / 2;  // scores, and their sum over values
  const std::int64_t head = 2 * C * config.vocab;
  return 3 * (config.layers * (products + attention) + head);
}

}  // namespace train_gpt
