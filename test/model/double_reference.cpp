#include "test/model/double_reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace reference {
namespace {

using train_gpt::TensorKind;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// in (N,C), weight (OC,C), bias (OC) or empty -> (N,OC)
Values linear(const Values& in, const Values& weight, const Values& bias, std::int64_t C, std::int64_t OC) {
  const std::int64_t N = static_cast<std::int64_t>(in.size()) / C;
  Values out(index(N * OC));
  for (std::int64_t n = 0; n < N; ++n)
    for (std::int64_t o = 0; o < OC; ++o) {
      double sum = bias.empty() ? 0 : bias[index(o)];
      for (std::int64_t c = 0; c < C; ++c) sum += in[index(n * C + c)] * weight[index(o * C + c)];
      out[index(n * OC + o)] = sum;
    }
  return out;
}

Values layernorm(const Values& in, const Values& weight, const Values& bias) {
  const std::size_t C = weight.size();
  Values out(in.size());
  for (std::size_t row = 0; row < in.size(); row += C) {
    double mean = 0;
    double variance = 0;
    for (std::size_t c = 0; c < C; ++c) mean += in[row + c] / static_cast<double>(C);
    for (std::size_t c = 0; c < C; ++c)
      variance += (in[row + c] - mean) * (in[row + c] - mean) / static_cast<double>(C);
    for (std::size_t c = 0; c < C; ++c)
      out[row + c] = (in[row + c] - mean) / std::sqrt(variance + 1e-5) * weight[c] + bias[c];
  }
  return out;
}

// One head of one sequence: qkv is its first row, q starts at column `head`. Adds into out (T,C) from column `head` on.
void attend(double* out, const double* qkv, std::int64_t T, std::int64_t C, std::int64_t head, std::int64_t width) {
  const auto element = [&](std::int64_t t, std::int64_t which, std::int64_t i) {
    return qkv[t * 3 * C + which * C + head + i];
  };
  for (std::int64_t t = 0; t < T; ++t) {
    Values scores;
    for (std::int64_t s = 0; s <= t; ++s) {
      double dot = 0;
      for (std::int64_t i = 0; i < width; ++i) dot += element(t, 0, i) * element(s, 1, i);
      scores.push_back(dot / std::sqrt(static_cast<double>(width)));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - largest);
    for (std::int64_t s = 0; s <= t; ++s)
      for (std::int64_t i = 0; i < width; ++i) out[t * C + head + i] += scores[index(s)] / sum * element(s, 2, i);
  }
}

Values sum(const Values& a, Values b) {
  for (std::size_t i = 0; i < a.size(); ++i) b[i] += a[i];
  return b;
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

}  // namespace

Values Model::matrix(TensorKind kind) const {
  Values rows;
  for (int k = 0; k < train_gpt::head_shards(config); ++k) {
    const Values& shard = tensor(kind, k);
    rows.insert(rows.end(), shard.begin(), shard.end());
  }
  return rows;
}

const Values& Model::tensor(TensorKind kind, std::int64_t layer) const {
  return tensors[index(train_gpt::tensor_index(config, kind, layer))];
}

Values attention(const Model& model, std::int64_t layer, const Values& x, std::int64_t B, std::int64_t T) {
  const std::int64_t C = model.config.hidden;
  const std::int64_t width = C / model.config.heads;
  const Values normed = layernorm(x, model.tensor(TensorKind::ln1w, layer), model.tensor(TensorKind::ln1b, layer));
  const Values qkv =
      linear(normed, model.tensor(TensorKind::qkvw, layer), model.tensor(TensorKind::qkvb, layer), C, 3 * C);
  Values attended(index(B * T * C));
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t head = 0; head < C; head += width)
      attend(&attended[index(b * T * C)], &qkv[index(b * T * 3 * C)], T, C, head, width);
  return sum(
      x, linear(attended, model.tensor(TensorKind::attprojw, layer), model.tensor(TensorKind::attprojb, layer), C, C));
}

Values mlp(const Model& model, std::int64_t layer, const Values& x) {
  const std::int64_t C = model.config.hidden;
  const Values normed = layernorm(x, model.tensor(TensorKind::ln2w, layer), model.tensor(TensorKind::ln2b, layer));
  Values hidden = linear(normed, model.tensor(TensorKind::fcw, layer), model.tensor(TensorKind::fcb, layer), C, 4 * C);
  std::transform(hidden.begin(), hidden.end(), hidden.begin(), gelu);
  return sum(
      x, linear(hidden, model.tensor(TensorKind::fcprojw, layer), model.tensor(TensorKind::fcprojb, layer), 4 * C, C));
}

Values embedding(const Model& model, const std::vector<std::int32_t>& tokens, std::int64_t T) {
  const std::int64_t C = model.config.hidden;
  const Values wte = model.matrix(TensorKind::wte);
  Values out;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    for (std::int64_t c = 0; c < C; ++c)
      out.push_back(wte[index(tokens[i] * C + c)] +
                    model.tensor(TensorKind::wpe)[index(static_cast<std::int64_t>(i) % T * C + c)]);
  return out;
}

Values head(const Model& model, const Values& x, const std::vector<std::int32_t>& targets) {
  const std::int64_t V = model.config.vocab;
  const Values normed = layernorm(x, model.tensor(TensorKind::lnfw), model.tensor(TensorKind::lnfb));
  const Values matrix = model.matrix(model.config.tied ? TensorKind::wte : TensorKind::headw);
  const Values logits = linear(normed, matrix, {}, model.config.hidden, V);
  Values result;
  for (std::size_t n = 0; n < targets.size(); ++n) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(n) * V;
    const double largest = *std::max_element(row, row + V);
    double total = 0;
    for (std::int64_t v = 0; v < V; ++v) total += std::exp(row[v] - largest);
    result.push_back(targets[n] < 0 ? 0 : std::log(total) + largest - row[targets[n]]);
  }
  return result;
}

Values losses(const Model& model, const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets,
              std::int64_t B, std::int64_t T) {
  Values x = embedding(model, tokens, T);
  for (std::int64_t layer = 0; layer < model.config.layers; ++layer)
    x = mlp(model, layer, attention(model, layer, x, B, T));
  return head(model, x, targets);
}

}  // namespace reference
