#include "model/config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

namespace train_gpt {
namespace {

struct Preset {
  const char* name;
  std::int64_t layers, heads, hidden;
};

constexpr std::array<Preset, 5> kPresets = {{
    {"d6", 6, 6, 384},
    {"d12", 12, 12, 768},
    {"d24", 24, 16, 1024},
    {"d36", 36, 20, 1280},
    {"d48", 48, 25, 1600},
}};

constexpr std::int64_t kShardBlock = 128;  // columns; the padded vocabulary is a multiple
constexpr std::int64_t kMostShardBlocks = 16;

void require_positive(const char* name, std::int64_t value) {
  if (value >= 1) return;
  throw std::invalid_argument(std::string(name) + " " + std::to_string(value) + ": must be at least 1");
}

// The divisors of `hidden` nearest to `heads`, for the error message.
std::string nearest_divisors(std::int64_t hidden, std::int64_t heads) {
  std::int64_t below = 1, above = hidden;  // 1 and `hidden` divide it
  for (std::int64_t d = 1; d * d <= hidden; ++d) {
    if (hidden % d != 0) continue;
    for (const std::int64_t divisor : {d, hidden / d}) {
      if (divisor <= heads) below = std::max(below, divisor);
      if (divisor >= heads) above = std::min(above, divisor);
    }
  }
  if (above >= hidden || above == below) return std::to_string(below);
  return std::to_string(below) + " or " + std::to_string(above);
}

}  // namespace

ModelConfig preset(const std::string& name) {
  std::string known;
  for (const Preset& p : kPresets) {
    if (name == p.name) {
      ModelConfig config;
      config.layers = p.layers;
      config.heads = p.heads;
      config.hidden = p.hidden;
      return config;
    }
    known += std::string(known.empty() ? "" : ", ") + p.name;
  }
  throw std::invalid_argument("--model " + name + ": unknown preset; known are " + known +
                              ", or give --layers --heads --hidden");
}

void check(const ModelConfig& config) {
  require_positive("--layers", config.layers);
  require_positive("--heads", config.heads);
  require_positive("--hidden", config.hidden);
  require_positive("--vocab", config.vocab);
  require_positive("--max-seq-len", config.max_seq_len);
  constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();  // model files hold sizes as int32
  constexpr std::int64_t kMostLayers = 1 << 16;  // so that a damaged header is refused at once
  if (config.layers > kMostLayers)
    throw std::invalid_argument("--layers " + std::to_string(config.layers) + ": must be at most " +
                                std::to_string(kMostLayers));
  for (const auto& [name, value] : {std::pair{"--hidden", config.hidden}, std::pair{"--vocab", config.vocab},
                                    std::pair{"--max-seq-len", config.max_seq_len}})
    if (value > kMaxInt32 - 127)
      throw std::invalid_argument(std::string(name) + " " + std::to_string(value) + ": must be below " +
                                  std::to_string(kMaxInt32 - 127));
  if (config.hidden % config.heads != 0)
    throw std::invalid_argument("--heads " + std::to_string(config.heads) + " does not divide --hidden " +
                                std::to_string(config.hidden) + ": try --heads " +
                                nearest_divisors(config.hidden, config.heads));
  // Bytes of parameters, gradients and moments are counted in 64 bits.
  const double C = static_cast<double>(config.hidden);
  const double parameters = 12.0 * static_cast<double>(config.layers) * C * C +
                            (2.0 * static_cast<double>(config.vocab) + static_cast<double>(config.max_seq_len)) * C;
  if (parameters > 1e16)
    throw std::invalid_argument("--layers " + std::to_string(config.layers) + " --hidden " +
                                std::to_string(config.hidden) + ": more than 1e16 parameters; choose a smaller model");
}

int first_head_unit(const ModelConfig& config) { return static_cast<int>(2 * config.layers + 1); }

int unit_count(const ModelConfig& config) { return first_head_unit(config) + head_shards(config); }

UnitKind unit_kind(const ModelConfig& config, int unit) {
  if (unit == 0) return UnitKind::embedding;
  if (unit >= first_head_unit(config)) return UnitKind::head;
  return unit % 2 == 1 ? UnitKind::attention : UnitKind::mlp;
}

std::int64_t unit_layer(const ModelConfig& config, int unit) {
  const UnitKind kind = unit_kind(config, unit);
  return kind == UnitKind::attention || kind == UnitKind::mlp ? (unit - 1) / 2 : -1;
}

int unit_shard(const ModelConfig& config, int unit) { return std::max(-1, unit - first_head_unit(config)); }

int head_shards(const ModelConfig& config) {
  return static_cast<int>((config.padded_vocab() / kShardBlock + kMostShardBlocks - 1) / kMostShardBlocks);
}

VocabularyShard vocabulary_shard(const ModelConfig& config, int shard) {
  const std::int64_t blocks = config.padded_vocab() / kShardBlock;
  const std::int64_t K = head_shards(config);
  const std::int64_t begin = blocks * shard / K * kShardBlock;
  const std::int64_t end = blocks * (shard + 1) / K * kShardBlock;
  return {.begin = begin, .width = end - begin, .columns = std::min(end, config.vocab) - begin};
}

std::int64_t parameter_count(const ModelConfig& config) {
  const std::int64_t C = config.hidden;
  const std::int64_t per_layer = 12 * C * C + 13 * C;  // qkv 3, projection 1, up 4, down 4; biases 9, LayerNorms 4
  const std::int64_t matrices_over_vocab = config.tied ? 1 : 2;
  return (matrices_over_vocab * config.vocab + config.max_seq_len) * C + config.layers * per_layer + 2 * C;
}

}  // namespace train_gpt
