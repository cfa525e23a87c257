// Gradients of every unit alone and of whole small models against central differences of the double reference.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "data/splitmix64.h"
#include "kernels/device.h"
#include "model/normal_numbers.h"
#include "test/model/double_reference.h"
#include "test/model/stage_chain.h"

using namespace train_gpt;

namespace {

// Odd sizes on purpose: C no multiple of 8, padding of the vocabulary, T odd.
ModelConfig small_model(bool tied) {
  ModelConfig config;
  config.layers = 2;
  config.heads = 3;
  config.hidden = 12;
  config.vocab = 131;
  config.max_seq_len = 7;
  config.tied = tied;
  return config;
}

// Values that make every gradient visible: no zero biases, LayerNorm weights away from 1.
void fill_tensor(float* out, const ModelConfig& config, const TensorInfo& tensor) {
  normal_numbers(out, /*seed=*/7, static_cast<std::uint64_t>(tensor.offset), tensor.elements, 0.3);
  const bool weight_of_norm =
      tensor.kind == TensorKind::ln1w || tensor.kind == TensorKind::ln2w || tensor.kind == TensorKind::lnfw;
  for (std::int64_t i = 0; i < tensor.elements && weight_of_norm; ++i) out[i] += 1.0F;
  for (std::int64_t i = elements_before_padding(config, tensor); i < tensor.elements; ++i) out[i] = 0;
}

reference::Model reference_model(const ModelConfig& config) {
  reference::Model model;
  model.config = config;
  for (const TensorInfo& tensor : model_tensors(config)) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements));
    fill_tensor(values.data(), config, tensor);
    model.tensors.emplace_back(values.begin(), values.end());
  }
  return model;
}

std::vector<std::int32_t> some_tokens(std::int64_t count, std::int64_t vocab, std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(splitmix64(seed * 1000 + static_cast<std::uint64_t>(i)) %
                                               static_cast<std::uint64_t>(vocab)));
  return tokens;
}

// d objective / d *x by central differences.
template <class Objective>
double central_difference(double* x, const Objective& objective) {
  constexpr double kStep = 1e-5;
  const double before = *x;
  *x = before + kStep;
  const double above = objective();
  *x = before - kStep;
  const double below = objective();
  *x = before;
  return (above - below) / (2 * kStep);
}

// Compares all elements of small tensors, every 37th of large ones and every 997th of shards. fp32 rounding is relative
// to the largest gradients of a tensor, not to each.
template <class Objective>
void expect_gradient(const std::string& name, const float* gradient, reference::Values& values,
                     const Objective& objective) {
  const std::size_t stride = values.size() > 10000 ? 997 : values.size() > 300 ? 37 : 1;
  std::vector<double> expected;
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    expected.push_back(central_difference(&values[i], objective));
    largest = std::max(largest, std::abs(expected.back()));
  }
  EXPECT_GT(largest, 0) << name << ": no gradient at all; the test shows nothing";
  for (std::size_t i = 0; i < values.size(); i += stride)
    EXPECT_NEAR(gradient[i], expected[i / stride], 2e-5 * largest + 1e-9) << name << "[" << i << "]";
}

struct Setting {
  UnitKind kind;
  HeadForm head;
  bool recompute;
  bool tied;
};

class UnitGradient : public testing::TestWithParam<Setting> {};

// A stage of one unit. Its output meets a random gradient; the objective is the product of the two.
TEST_P(UnitGradient, EqualsCentralDifferences) {
  const auto& [kind, head, recompute, tied] = GetParam();
  const ModelConfig config = small_model(tied);
  constexpr std::int64_t B = 2, T = 5;
  const std::int64_t N = B * T;
  const int u = kind == UnitKind::embedding ? 0 : kind == UnitKind::attention ? 3 : kind == UnitKind::mlp ? 4 : 5;
  ASSERT_EQ(unit_kind(config, u), kind);
  const std::int64_t layer = unit_layer(config, u);

  const std::unique_ptr<Device> device = make_cpu_device(1);
  StageShape shape;
  shape.model = config;
  shape.first_unit = u;
  shape.last_unit = u + 1;
  shape.B = B;
  shape.T = T;
  shape.head = head;
  shape.recompute = {recompute};
  Stage stage(*device, shape);
  const StageBytes bytes = stage_bytes(shape, Precision::fp32);
  std::vector<char> workspace(
      static_cast<std::size_t>(device->workspace_bytes(B, T, config.hidden, config.heads, config.padded_vocab())) +
      256);
  void* aligned = workspace.data();
  std::size_t space = workspace.size();
  std::align(256, workspace.size() - 256, aligned, space);
  device->use_workspace(aligned, static_cast<std::int64_t>(space));

  std::vector<bool> held(static_cast<std::size_t>(unit_count(config)));
  held[static_cast<std::size_t>(u)] = true;
  const ArenaLayout layout = arena_layout(config, held);
  const std::vector<TensorInfo> tensors = model_tensors(config);
  std::vector<float> values(static_cast<std::size_t>(layout.elements));
  std::vector<float> gradients(static_cast<std::size_t>(layout.gradient_elements));
  for (const ArenaLayout::Entry& entry : layout.entries)
    fill_tensor(values.data() + entry.offset, config, tensors[static_cast<std::size_t>(entry.tensor)]);

  const std::vector<std::int32_t> tokens = some_tokens(N, config.vocab, 1);
  std::vector<std::int32_t> targets = some_tokens(N, config.vocab, 2);
  targets[3] = -1;
  std::vector<float> losses(static_cast<std::size_t>(N));
  const std::int64_t message = N * config.hidden * 4;
  GuardedSlot x(message), y(message), dx(message), dy(message);
  GuardedSlot to_input(bytes.forward_to_input), to_weight(bytes.forward_to_weight), pending(bytes.input_to_weight),
      scratch(bytes.scratch);
  const std::int64_t elements = N * config.hidden;
  normal_numbers(static_cast<float*>(x.data()), 11, 0, elements, 1.0);
  normal_numbers(static_cast<float*>(dy.data()), 12, 0, elements, 1.0);
  constexpr float kDloss = 0.25F;
  const ParameterView view = {&layout, values.data(), values.data(), gradients.data()};
  const StageSlots slots = {.input = x.data(),
                            .output = y.data(),
                            .output_gradient = dy.data(),
                            .input_gradient = dx.data(),
                            .forward_to_input = to_input.data(),
                            .forward_to_weight = to_weight.data(),
                            .input_to_weight = pending.data(),
                            .scratch = scratch.data(),
                            .tokens = tokens.data(),
                            .targets = targets.data(),
                            .losses = losses.data(),
                            .dloss = kDloss};
  stage.forward(slots, view, ForwardUse::training);
  stage.backward_input(slots, view);
  stage.backward_weight(slots, view);

  reference::Model model = reference_model(config);
  const auto doubles = [&](const GuardedSlot& slot) {
    const float* floats = static_cast<const float*>(slot.data());
    return reference::Values(floats, floats + elements);
  };
  reference::Values input = doubles(x);
  const reference::Values weights = doubles(dy);
  const auto output = [&] {
    if (kind == UnitKind::embedding) return reference::embedding(model, tokens, T);
    if (kind == UnitKind::attention) return reference::attention(model, layer, input, B, T);
    if (kind == UnitKind::mlp) return reference::mlp(model, layer, input);
    return reference::head(model, input, targets);
  };
  const auto objective = [&] {
    const reference::Values out = output();
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i)
      sum += out[i] * (kind == UnitKind::head ? static_cast<double>(kDloss) : weights[i]);
    return sum;
  };
  const reference::Values expected = output();
  const float* actual = kind == UnitKind::head ? losses.data() : static_cast<const float*>(y.data());
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 2e-5) << "output " << i;

  if (kind != UnitKind::embedding) expect_gradient("dx", static_cast<const float*>(dx.data()), input, objective);
  for (const ArenaLayout::Entry& entry : layout.entries)
    expect_gradient(tensors[static_cast<std::size_t>(entry.tensor)].name, gradients.data() + entry.offset,
                    model.tensors[static_cast<std::size_t>(entry.tensor)], objective);
}

INSTANTIATE_TEST_SUITE_P(AllUnits, UnitGradient,
                         testing::Values(Setting{UnitKind::embedding, HeadForm::streamed, false, true},
                                         Setting{UnitKind::attention, HeadForm::streamed, false, true},
                                         Setting{UnitKind::attention, HeadForm::streamed, true, true},
                                         Setting{UnitKind::mlp, HeadForm::streamed, false, true},
                                         Setting{UnitKind::mlp, HeadForm::streamed, true, true},
                                         Setting{UnitKind::head, HeadForm::streamed, false, true},
                                         Setting{UnitKind::head, HeadForm::stored, false, true},
                                         Setting{UnitKind::head, HeadForm::streamed, false, false},
                                         Setting{UnitKind::head, HeadForm::stored, false, false}));

// The whole model, two micro-batches: gradients of the mean loss over the valid targets. With a head of one shard, and
// with one of two shards on stages of their own.
TEST(ModelGradient, EqualsCentralDifferences) {
  for (const auto& [tied, vocab, cut] : {std::tuple<bool, std::int64_t, std::vector<int>>{true, 131, {6}},
                                         {false, 131, {6}},
                                         {true, 2060, {5, 1, 1}},
                                         {false, 2060, {4, 2, 1}}}) {
    ChainShape shape;
    shape.model = small_model(tied);
    shape.model.vocab = vocab;
    shape.cut = cut;
    shape.B = 2;
    shape.T = 5;
    std::vector<MicroBatch> batches;
    for (const std::uint64_t seed : {3U, 5U})
      batches.push_back({some_tokens(10, shape.model.vocab, seed), some_tokens(10, shape.model.vocab, seed + 1)});
    batches[1].targets[4] = -1;
    // The first row of every shard has a gradient, whatever is compared of the others.
    batches[0].tokens[0] = 0;
    batches[0].tokens[7] = static_cast<std::int32_t>(vocabulary_shard(shape.model, head_shards(shape.model) - 1).begin);
    const VocabularyShard last = vocabulary_shard(shape.model, head_shards(shape.model) - 1);
    batches[0].targets = {0,
                          static_cast<std::int32_t>(last.begin),
                          static_cast<std::int32_t>(vocab - 1),
                          1,
                          2,
                          3,
                          4,
                          5,
                          6,
                          static_cast<std::int32_t>(std::max<std::int64_t>(last.begin - 1, 0))};
    constexpr float kDloss = 1.0F / 19;

    const std::unique_ptr<Device> device = make_cpu_device(1);
    StageChain chain(*device, shape);
    chain.set_parameters([&](float* out, const TensorInfo& tensor) { fill_tensor(out, shape.model, tensor); });
    const std::vector<float> losses = chain.train(batches, kDloss, /*deferred=*/true);

    reference::Model model = reference_model(shape.model);
    const auto mean_loss = [&] {
      double sum = 0;
      for (const MicroBatch& batch : batches)
        for (const double loss : reference::losses(model, batch.tokens, batch.targets, shape.B, shape.T)) sum += loss;
      return sum / 19;
    };
    double sum = 0;
    for (const float loss : losses) sum += static_cast<double>(loss);
    EXPECT_NEAR(sum / 19, mean_loss(), 1e-6);
    const std::vector<std::vector<float>> gradients = chain.gradients();
    const std::vector<TensorInfo> tensors = model_tensors(shape.model);
    for (std::size_t t = 0; t < tensors.size(); ++t)
      expect_gradient(tensors[t].name, gradients[t].data(), model.tensors[t], mean_loss);
  }
}

}  // namespace
