// The sizes of a GPT-2 style model and the list of its units.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/device.h"

namespace train_gpt {

struct ModelConfig {
  std::int64_t layers = 6;
  std::int64_t heads = 6;
  std::int64_t hidden = 384;   // C, a multiple of heads
  std::int64_t vocab = 50257;  // V
  std::int64_t max_seq_len = 1024;
  bool tied = true;  // one matrix is both token embedding and classifier

  std::int64_t padded_vocab() const { return (vocab + 127) / 128 * 128; }  // Vp
  bool operator==(const ModelConfig&) const = default;
};

// d6 d12 d24 d36 d48 (layers/heads/hidden 6/6/384, 12/12/768, 24/16/1024, 36/20/1280, 48/25/1600).
// Throws std::invalid_argument naming the preset and the known ones.
ModelConfig preset(const std::string& name);

// Throws std::invalid_argument when sizes contradict each other (heads must divide hidden, all >= 1 ...).
void check(const ModelConfig& config);

// Embedding, then per layer Attention and Mlp, then the shards of the head, which follow each other like layers (see
// unit_head.h). The model may be cut between any two units; boundary.h has the messages.
enum class UnitKind : std::uint8_t { embedding, attention, mlp, head };

int unit_count(const ModelConfig& config);  // 2 * layers + 1 + head_shards
UnitKind unit_kind(const ModelConfig& config, int unit);
std::int64_t unit_layer(const ModelConfig& config, int unit);  // of attention and mlp units; else -1
int unit_shard(const ModelConfig& config, int unit);           // of head units; else -1

// The head's K shards of the vocabulary: at most 2048 columns each, equal in blocks of 128. They follow from the size
// of the vocabulary alone, so that no sum depends on the layout.
int head_shards(const ModelConfig& config);      // K
int first_head_unit(const ModelConfig& config);  // the unit of shard 0
VocabularyShard vocabulary_shard(const ModelConfig& config, int shard);
std::int64_t parameter_count(const ModelConfig& config);  // without padding rows, as people quote it

}  // namespace train_gpt
