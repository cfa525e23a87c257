// The classifier's shards at the level of the device: F, I and W of each, one after the other, with the exponentials
// kept or computed once more.
#pragma once

#include <cstring>
#include <vector>

#include "test/kernels/device_fixture.h"

namespace train_gpt {

// Like vocabulary_shard (model/config.h), with a width of the test's choice.
inline std::vector<VocabularyShard> shards_of(std::int64_t V, std::int64_t width) {
  std::vector<VocabularyShard> shards;
  const std::int64_t Vp = (V + 127) / 128 * 128;
  for (std::int64_t begin = 0; begin < Vp; begin += width) {
    const std::int64_t end = std::min(begin + width, Vp);
    shards.push_back({.begin = begin, .width = end - begin, .columns = std::min(end, V) - begin});
  }
  return shards;
}

struct ShardResults {
  Floats losses, validated;  // (rows)
  Floats din;                // (rows,C)
  Floats dweight;            // (Vp,C)
};

struct ShardSizes {
  std::int64_t rows = 0, C = 0, V = 0, width = 0;
  std::int64_t Vp() const { return (V + 127) / 128 * 128; }
};

// in(rows,C) and weight(Vp,C) at activation precision; targets on the device.
inline ShardResults run_shards(Device& device, const ShardSizes& s, const void* in, const void* weight,
                               const std::int32_t* targets, float dloss, bool recompute) {
  const std::int64_t element = element_size(device.precision());
  const auto nothing = [&](std::int64_t n) { return Floats(static_cast<std::size_t>(n), NAN); };
  Buffer scores(device, nothing(s.rows * s.width)), kept(device, nothing(s.rows * s.Vp())),
      then(device, nothing(s.rows * static_cast<std::int64_t>(shards_of(s.V, s.width).size()))),
      largest(device, nothing(s.rows)), sum(device, nothing(s.rows)), at_target(device, nothing(s.rows)),
      mixture(device, nothing(s.rows * s.C)), losses(device, nothing(s.rows)), validated(device, nothing(s.rows)),
      dweight(device, nothing(s.Vp() * s.C));
  const std::vector<VocabularyShard> shards = shards_of(s.V, s.width);
  const auto rows_of = [&](const VocabularyShard& shard) {
    return static_cast<const char*>(weight) + shard.begin * s.C * element;
  };
  const auto exponentials = [&](const VocabularyShard& shard) {
    return static_cast<char*>(static_cast<void*>(static_cast<float*>(kept))) + s.rows * shard.begin * element;
  };
  const SoftmaxFold alone{largest, sum, at_target, nullptr};
  const SoftmaxFold fold{largest, sum, at_target, mixture};
  for (std::size_t k = 0; k < shards.size(); ++k) {
    device.shard_scores(scores, in, rows_of(shards[k]), s.rows, s.C, shards[k].width);
    device.fold_scores(alone, nullptr, nullptr, scores, targets, shards[k], k == 0, s.rows, s.C);
  }
  device.finish_cross_entropy(validated, alone, targets, dloss, s.rows, s.C);
  for (std::size_t k = 0; k < shards.size(); ++k) {
    float* const largest_then = static_cast<float*>(then) + static_cast<std::int64_t>(k) * s.rows;
    device.shard_scores(scores, in, rows_of(shards[k]), s.rows, s.C, shards[k].width);
    device.fold_scores(fold, exponentials(shards[k]), largest_then, scores, targets, shards[k], k == 0, s.rows, s.C);
    device.shard_mixture(mixture, exponentials(shards[k]), rows_of(shards[k]), k == 0, s.rows, s.C, shards[k].width);
  }
  device.finish_cross_entropy(losses, fold, targets, dloss, s.rows, s.C);
  for (std::size_t k = shards.size(); k-- > 0;) {
    device.subtract_targets(mixture, rows_of(shards[k]), targets, dloss, shards[k], s.rows, s.C);
    const float* const largest_then = static_cast<float*>(then) + static_cast<std::int64_t>(k) * s.rows;
    if (recompute) {
      device.shard_scores(scores, in, rows_of(shards[k]), s.rows, s.C, shards[k].width);
      device.score_exponentials(exponentials(shards[k]), scores, largest_then, shards[k], s.rows);
    }
    device.score_gradients(exponentials(shards[k]), exponentials(shards[k]), largest_then, largest, sum, targets, dloss,
                           shards[k], s.rows);
    device.matmul_first_backward_weight(static_cast<float*>(dweight) + shards[k].begin * s.C, nullptr, in,
                                        exponentials(shards[k]), s.rows, s.C, shards[k].width);
  }
  return {losses.values(), validated.values(), mixture.values(), dweight.values()};
}

struct ExpectedShards {
  reference::Values losses, din, dweight;
};

inline ExpectedShards expected_shards(const ShardSizes& s, const reference::Values& in, const reference::Values& weight,
                                      const std::vector<std::int32_t>& targets, double dloss) {
  const reference::Values scores = reference::matmul(in, weight, {}, s.rows, s.C, s.Vp());
  const auto [losses, dscores] = reference::cross_entropy(scores, targets, dloss, s.rows, s.V, s.Vp());
  return {losses, reference::matmul_backward_input(dscores, weight, s.rows, s.C, s.Vp()),
          reference::matmul_backward_weight(dscores, in, s.rows, s.C, s.Vp())};
}

// Rows with targets at both ends of the vocabulary and of every shard, and one without.
inline std::vector<std::int32_t> targets_at_edges(const ShardSizes& s) {
  std::vector<std::int32_t> targets;
  for (const VocabularyShard& shard : shards_of(s.V, s.width)) {
    targets.push_back(static_cast<std::int32_t>(shard.begin));
    targets.push_back(static_cast<std::int32_t>(shard.begin + shard.columns - 1));
  }
  targets.push_back(-1);
  return targets;
}

// weight(Vp,C) with zeros in its padding rows, as models have it.
inline Floats classifier_rows(const ShardSizes& s, std::uint32_t seed, float deviation) {
  Floats weight = random_floats(s.Vp() * s.C, seed, deviation);
  std::fill(weight.begin() + s.V * s.C, weight.end(), 0.0F);
  return weight;
}

}  // namespace train_gpt
