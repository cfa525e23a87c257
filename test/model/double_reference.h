// GPT-2's forward in double, written for clarity: what the units are tested against. Gradients come from it by central
// differences.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"

namespace reference {

using Values = std::vector<double>;

struct Model {
  train_gpt::ModelConfig config;
  std::vector<Values> tensors;  // in canonical order

  const Values& tensor(train_gpt::TensorKind kind, std::int64_t layer = 0) const;
  Values matrix(train_gpt::TensorKind kind) const;  // wte or headw, all shards: (Vp,C)
};

// x (B*T,C) -> y (B*T,C) for Attention and Mlp.
Values attention(const Model& model, std::int64_t layer, const Values& x, std::int64_t B, std::int64_t T);
Values mlp(const Model& model, std::int64_t layer, const Values& x);
// tokens (B*T) -> (B*T,C)
Values embedding(const Model& model, const std::vector<std::int32_t>& tokens, std::int64_t T);
// x (B*T,C), targets (B*T) -> losses (B*T), 0 where the target is < 0
Values head(const Model& model, const Values& x, const std::vector<std::int32_t>& targets);
// tokens and targets (B*T) -> losses (B*T)
Values losses(const Model& model, const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets,
              std::int64_t B, std::int64_t T);

}  // namespace reference
