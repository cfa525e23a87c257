#include "model/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "data/splitmix64.h"
#include "kernels/device.h"
#include "model/normal_numbers.h"
#include "test/model/plain_trainer.h"

using namespace train_gpt;

namespace {

// wte has 2560 * 32 elements: more than one atom.
ModelConfig small_model(bool tied) {
  ModelConfig config;
  config.layers = 2;
  config.heads = 2;
  config.hidden = 32;
  config.vocab = 2500;  // two shards of the head: seven units
  config.max_seq_len = 8;
  config.tied = tied;
  return config;
}

std::vector<MicroBatch> batches(std::uint64_t seed) {
  std::vector<MicroBatch> result(2);
  for (MicroBatch& batch : result)
    for (int i = 0; i < 16; ++i) {
      batch.tokens.push_back(static_cast<std::int32_t>(splitmix64(seed++) % 2500));
      batch.targets.push_back(static_cast<std::int32_t>(splitmix64(seed++) % 2500));
    }
  return result;
}

struct Trained {
  std::vector<double> losses, norms;
  std::string hash;
  bool operator==(const Trained&) const = default;
};

Trained run(const std::vector<int>& cut, bool tied, double grad_clip, int threads) {
  const std::unique_ptr<Device> device = make_cpu_device(threads);
  ChainShape shape;
  shape.model = small_model(tied);
  shape.cut = cut;
  shape.head = cut.size() % 2 == 0 ? HeadForm::stored : HeadForm::streamed;
  shape.B = 2;
  shape.T = 8;
  TrainerOptions options;
  options.adamw.weight_decay = 0.1F;
  options.learning_rate = 1e-3;
  options.grad_clip = grad_clip;
  PlainTrainer trainer(*device, shape, options);
  trainer.chain().set_parameters(
      [&](float* out, const TensorInfo& tensor) { initialise(out, shape.model, tensor, 1); });
  Trained result;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const PlainTrainer::StepResult s = trainer.step(batches(step));
    result.losses.push_back(s.loss);
    result.norms.push_back(s.norm);
  }
  result.hash = trainer.hash();
  return result;
}

TEST(Optimizer, LossesNormsAndHashDoNotDependOnThePartition) {
  for (const bool tied : {true, false})
    for (const double grad_clip : {0.0, 0.5}) {
      const Trained one = run({7}, tied, grad_clip, 1);
      for (const std::vector<int>& cut : {std::vector<int>{1, 6}, {3, 3, 1}, {5, 2}, {1, 1, 1, 1, 1, 1, 1}, {7}})
        EXPECT_EQ(one, run(cut, tied, grad_clip, 2)) << cut.size() << " stages, tied " << tied;
      EXPECT_GT(one.norms.front(), 0.5) << "clipping never acted";
    }
  EXPECT_NE(run({7}, true, 0.0, 1).hash, run({7}, true, 0.5, 1).hash);
}

TEST(Optimizer, NormIsThatOfAllGradients) {
  const ModelConfig config = small_model(true);
  const std::unique_ptr<Device> device = make_cpu_device(2);
  const auto units = static_cast<std::size_t>(unit_count(config));
  std::vector<double> sums(static_cast<std::size_t>(atom_count(config)));
  double expected = 0;
  for (std::size_t first = 0; first < units; first += 2) {
    std::vector<bool> held(units);
    held[first] = true;
    if (first + 1 < units) held[first + 1] = true;
    const ArenaLayout layout = arena_layout(config, held);
    std::vector<float> gradients(static_cast<std::size_t>(layout.gradient_elements), NAN);
    for (const ArenaLayout::Entry& entry : layout.entries) {
      const TensorInfo tensor = model_tensors(config)[static_cast<std::size_t>(entry.tensor)];
      float* values = gradients.data() + entry.offset;
      normal_numbers(values, 5, static_cast<std::uint64_t>(tensor.offset), tensor.elements, 1.0);
      for (std::int64_t i = 0; i < tensor.elements && entry.owned; ++i)
        expected += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    std::vector<double> scratch(static_cast<std::size_t>(owned_atoms(layout)));
    std::vector<double> host(scratch.size());
    std::vector<double> of_rank(sums.size());  // brought together by adding up, as ranks do it
    gradient_squared_sums(*device, of_rank, scratch.data(), host.data(), layout, gradients.data());
    for (std::size_t a = 0; a < sums.size(); ++a) sums[a] += of_rank[a];
  }
  EXPECT_NEAR(gradient_norm(sums), std::sqrt(expected), 1e-9);
}

TEST(Optimizer, ClipFactorBringsTheNormDownToTheLimit) {
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25F);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1.0F);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0F);
  EXPECT_EQ(clip_factor(1e9, 0.0), 1.0F);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0F);
}

// AdamW by its published formula, element by element, in double.
TEST(Optimizer, StepIsAdamWWithDecayOnMatricesOnly) {
  const ModelConfig config = small_model(false);
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const ArenaLayout layout =
      arena_layout(config, std::vector<bool>(static_cast<std::size_t>(unit_count(config)), true));
  const auto elements = static_cast<std::size_t>(layout.elements);
  std::vector<float> values(elements), gradients(elements), m(elements), v(elements);
  normal_numbers(values.data(), 1, 0, layout.elements, 1.0);
  AdamWConstants constants;
  constants.weight_decay = 0.1F;
  std::vector<double> x(values.begin(), values.end()), dm(elements), dv(elements);
  for (std::int64_t step = 0; step < 3; ++step) {
    normal_numbers(gradients.data(), 2 + static_cast<std::uint64_t>(step), 0, layout.elements, 0.01);
    constexpr double kRate = 1e-2;
    constexpr float kClip = 0.5F;
    const AdamWScalars scalars = adamw_scalars(constants, kRate, step, kClip);
    const OptimizerArenas arenas = {values.data(), nullptr, m.data(), v.data(), values.data(), gradients.data()};
    adamw_step(*device, arenas, layout, &scalars, constants, /*keep_moments=*/false);
    for (const ArenaLayout::Entry& entry : layout.entries) {
      const TensorInfo tensor = model_tensors(config)[static_cast<std::size_t>(entry.tensor)];
      for (std::int64_t k = 0; k < tensor.elements; k += 17) {
        const auto i = static_cast<std::size_t>(entry.offset + k);
        const double g = static_cast<double>(gradients[i]) * static_cast<double>(kClip);
        dm[i] = 0.9 * dm[i] + 0.1 * g;
        dv[i] = 0.999 * dv[i] + 0.001 * g * g;
        const double t = static_cast<double>(step + 1);
        const double update = dm[i] / (1 - std::pow(0.9, t)) / (std::sqrt(dv[i] / (1 - std::pow(0.999, t))) + 1e-8);
        x[i] -= kRate * (update + (tensor.decays ? 0.1 : 0.0) * x[i]);
        ASSERT_NEAR(values[i], x[i], 3e-6) << tensor.name << "[" << k << "] step " << step;
      }
    }
  }
}

// The optimistic step: parameters to a spare buffer, moments afterwards; together the synchronous step, bit for bit.
TEST(Optimizer, StepAndMomentsApartAreTheStep) {
  const ModelConfig config = small_model(true);
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const ArenaLayout layout =
      arena_layout(config, std::vector<bool>(static_cast<std::size_t>(unit_count(config)), true));
  const auto elements = static_cast<std::size_t>(layout.elements);
  std::vector<float> values(elements), gradients(elements), m(elements), v(elements);
  normal_numbers(values.data(), 1, 0, layout.elements, 1.0);
  normal_numbers(gradients.data(), 2, 0, layout.elements, 0.1);
  normal_numbers(m.data(), 3, 0, layout.elements, 0.1);
  for (std::size_t i = 0; i < elements; ++i) v[i] = gradients[i] * gradients[i];
  const std::vector<float> before = values;
  std::vector<float> spare(elements), m2 = m, v2 = v;
  AdamWConstants constants;
  constants.weight_decay = 0.1F;
  const AdamWScalars scalars = adamw_scalars(constants, 1e-3, 4, 0.7F);
  const OptimizerArenas apart = {spare.data(), nullptr, m2.data(), v2.data(), values.data(), gradients.data()};
  adamw_step(*device, apart, layout, &scalars, constants, /*keep_moments=*/true);
  EXPECT_EQ(values, before);
  EXPECT_EQ(m2, m);
  adamw_moments_step(*device, apart, layout, &scalars, constants);
  const OptimizerArenas whole = {values.data(), nullptr, m.data(), v.data(), values.data(), gradients.data()};
  adamw_step(*device, whole, layout, &scalars, constants, /*keep_moments=*/false);
  EXPECT_EQ(m2, m);
  EXPECT_EQ(v2, v);
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const auto begin = static_cast<std::size_t>(entry.offset);
    EXPECT_EQ(spare[begin], values[begin]);
    EXPECT_NE(spare[begin], before[begin]);
  }
}

// Tensors whose numbers follow from their places; the hash was computed by the same formula in Python. Checkpoints hold
// such hashes.
TEST(ParameterHash, DoesNotChangeBetweenVersions) {
  const ModelConfig config = {.layers = 1, .heads = 1, .hidden = 2, .vocab = 3, .max_seq_len = 4, .tied = true};
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const ArenaLayout layout =
      arena_layout(config, std::vector<bool>(static_cast<std::size_t>(unit_count(config)), true));
  std::vector<float> values(static_cast<std::size_t>(layout.elements));
  for (const ArenaLayout::Entry& entry : layout.entries) {
    for (std::int64_t i = 0; i < entry.info.elements; ++i) {
      values[static_cast<std::size_t>(entry.offset + i)] = static_cast<float>(1000 * entry.tensor + i);
    }
  }
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(atom_count(config)));
  parameter_hashes(*device, hashes, layout, values.data());
  EXPECT_EQ(combined_hash(hashes), "0dbdc36819620b96");
  values[0] = -0.0F;  // was 0
  parameter_hashes(*device, hashes, layout, values.data());
  EXPECT_NE(combined_hash(hashes), "0dbdc36819620b96");
}

TEST(ParameterHash, SeesEveryBitAndEveryPlace) {
  const ModelConfig config = small_model(true);
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const ArenaLayout layout =
      arena_layout(config, std::vector<bool>(static_cast<std::size_t>(unit_count(config)), true));
  std::vector<float> values(static_cast<std::size_t>(layout.elements));
  initialise_arena(*device, values.data(), config, layout, 1);
  const auto hash = [&] {
    std::vector<std::uint64_t> hashes(static_cast<std::size_t>(atom_count(config)));
    parameter_hashes(*device, hashes, layout, values.data());
    return combined_hash(hashes);
  };
  const std::string before = hash();
  EXPECT_EQ(before.size(), 16U);
  EXPECT_EQ(before.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(before, hash());
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const TensorInfo tensor = model_tensors(config)[static_cast<std::size_t>(entry.tensor)];
    for (const std::int64_t k : {std::int64_t{0}, tensor.elements - 1}) {  // of wte the last is a padding row's
      float& value = values[static_cast<std::size_t>(entry.offset + k)];
      const float old = value;
      value = std::nextafter(old, 10.0F);
      EXPECT_NE(before, hash()) << tensor.name << "[" << k << "]";
      value = old;
    }
  }
  const auto wte = static_cast<std::size_t>(layout.offset_of(0));
  std::swap(values[wte], values[wte + 4]);  // same chain of the hash
  EXPECT_NE(before, hash());
  std::swap(values[wte], values[wte + 4]);
  std::swap(values[wte], values[wte + 1]);
  EXPECT_NE(before, hash());
  std::swap(values[wte], values[wte + 1]);
  const auto swap_layers = [&] {
    const auto first = values.begin() + layout.offset_of(tensor_index(config, TensorKind::qkvw, 0));
    const auto second = values.begin() + layout.offset_of(tensor_index(config, TensorKind::qkvw, 1));
    std::swap_ranges(first, first + 3 * config.hidden * config.hidden, second);
  };
  swap_layers();
  EXPECT_NE(before, hash()) << "two atoms changed places";
  swap_layers();
  EXPECT_EQ(before, hash());
}

}  // namespace
