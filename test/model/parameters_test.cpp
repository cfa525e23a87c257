#include "model/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "data/splitmix64.h"
#include "kernels/device.h"
#include "model/normal_numbers.h"

using namespace train_gpt;

namespace {

ModelConfig small_model(bool tied) {
  ModelConfig config;
  config.layers = 3;
  config.heads = 2;
  config.hidden = 20;
  config.vocab = 130;
  config.max_seq_len = 9;
  config.tied = tied;
  return config;
}

std::vector<float> initial(const ModelConfig& config, const TensorInfo& tensor, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements), NAN);
  initialise(values.data(), config, tensor, seed);
  return values;
}

TEST(Parameters, CanonicalOrderIsThatOfModelFiles) {
  const std::vector<TensorInfo> tensors = model_tensors(small_model(false));
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  std::vector<std::string> expected = {"wte", "wpe"};
  for (const char* kind :
       {"ln1w", "ln1b", "qkvw", "qkvb", "attprojw", "attprojb", "ln2w", "ln2b", "fcw", "fcb", "fcprojw", "fcprojb"})
    for (int layer = 0; layer < 3; ++layer) expected.push_back("h" + std::to_string(layer) + "." + kind);
  for (const char* name : {"lnfw", "lnfb", "headw"}) expected.emplace_back(name);
  EXPECT_EQ(names, expected);
}

TEST(Parameters, TensorsAreContiguousAndSumUpToTheModel) {
  for (const bool tied : {true, false}) {
    const ModelConfig config = small_model(tied);
    const std::vector<TensorInfo> tensors = model_tensors(config);
    std::int64_t elements = 0;
    std::int64_t atoms = 0;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const TensorInfo& tensor = tensors[t];
      EXPECT_EQ(tensor.offset, elements) << tensor.name;
      EXPECT_EQ(tensor.first_atom, atoms) << tensor.name;
      EXPECT_EQ(tensor_index(config, tensor.kind, std::max<std::int64_t>(0, unit_layer(config, tensor.unit))),
                static_cast<int>(t))
          << tensor.name;
      elements += tensor.elements;
      atoms += (tensor.elements + kAtomElements - 1) / kAtomElements;
    }
    const std::int64_t padding = (config.padded_vocab() - config.vocab) * config.hidden * (tied ? 1 : 2);
    EXPECT_EQ(elements, parameter_count(config) + padding);
    EXPECT_EQ(element_count(config), elements);
    EXPECT_EQ(atom_count(config), atoms);
  }
}

TEST(Parameters, OnlyMatricesDecay) {
  for (const TensorInfo& tensor : model_tensors(small_model(false))) {
    const std::string kind = tensor.name.substr(tensor.name.find('.') + 1);
    EXPECT_EQ(tensor.decays, kind.back() != 'b' && kind.substr(0, 2) != "ln") << tensor.name;
  }
}

// Matrices over the vocabulary are one tensor per shard, so that atoms begin anew at every shard's edge; the values of
// the whole do not depend on that.
TEST(Parameters, ShardsOfTheVocabularyAreTensors) {
  ModelConfig config = small_model(false);
  config.vocab = 4997;  // three shards
  const std::vector<TensorInfo> tensors = model_tensors(config);
  std::int64_t elements = 0, atoms = 0;
  for (int k = 0; k < 3; ++k) {
    const TensorInfo& wte = tensors[static_cast<std::size_t>(tensor_index(config, TensorKind::wte, k))];
    const TensorInfo& headw = tensors[static_cast<std::size_t>(tensor_index(config, TensorKind::headw, k))];
    EXPECT_EQ(wte.name, "wte." + std::to_string(k));
    EXPECT_EQ(headw.name, "headw." + std::to_string(k));
    EXPECT_EQ(wte.unit, 0);
    EXPECT_EQ(headw.unit, first_head_unit(config) + k);
    EXPECT_EQ(wte.offset, vocabulary_shard(config, k).begin * config.hidden);
    EXPECT_EQ(wte.first_atom, atoms);
    EXPECT_EQ(wte.elements, headw.elements);
    atoms += (wte.elements + kAtomElements - 1) / kAtomElements;
    elements += wte.elements;
  }
  EXPECT_EQ(elements, config.padded_vocab() * config.hidden);
  EXPECT_EQ(tensors[3].name, "wpe");
  // A rank with the embedding and shards 1 and 2 of a tied head: wte lies in one piece, and has two gradients where the
  // head is here.
  config.tied = true;
  std::vector<bool> units(static_cast<std::size_t>(unit_count(config)));
  units.front() = units[units.size() - 2] = units.back() = true;
  const ArenaLayout layout = arena_layout(config, units);
  EXPECT_EQ(layout.entries[0].head_gradient, -1);
  EXPECT_EQ(layout.entries[1].head_gradient, layout.elements);
  EXPECT_EQ(layout.gradient_elements, layout.elements + elements - tensors[0].elements);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(layout.offset_of(k), tensors[static_cast<std::size_t>(k)].offset);
  const ElementRange range = wte_range(config, layout, 1, 3);
  EXPECT_EQ(range.offset, tensors[0].elements);
  EXPECT_EQ(range.elements, elements - tensors[0].elements);
}

// However the units are dealt out, every tensor has one owner, and its units find it.
TEST(Parameters, EveryTensorHasOneOwner) {
  for (const bool tied : {true, false}) {
    const ModelConfig config = small_model(tied);
    const auto units = static_cast<std::size_t>(unit_count(config));
    const std::vector<TensorInfo> tensors = model_tensors(config);
    for (std::size_t cut = 1; cut < units; ++cut) {
      std::vector<bool> first(units), second(units, true);
      for (std::size_t u = 0; u < cut; ++u) first[u] = true, second[u] = false;
      std::vector<int> owners(tensors.size());
      for (const std::vector<bool>& held : {first, second})
        for (const ArenaLayout::Entry& entry : arena_layout(config, held).entries)
          owners[static_cast<std::size_t>(entry.tensor)] += entry.owned ? 1 : 0;
      for (std::size_t t = 0; t < tensors.size(); ++t) EXPECT_EQ(owners[t], 1) << tensors[t].name;
      const ArenaLayout head = arena_layout(config, second);
      EXPECT_EQ(head.offset_of(0) >= 0, tied) << "the tied head reads wte";
      EXPECT_EQ(head.gradient_elements, head.elements);
    }
  }
}

TEST(Parameters, ArenaTensorsDoNotOverlapAndAreAligned) {
  const ModelConfig config = small_model(true);
  const ArenaLayout layout =
      arena_layout(config, std::vector<bool>(static_cast<std::size_t>(unit_count(config)), true));
  const std::vector<TensorInfo> tensors = model_tensors(config);
  std::int64_t end = 0;
  for (const ArenaLayout::Entry& entry : layout.entries) {
    EXPECT_GE(entry.offset, end);
    EXPECT_EQ(entry.offset * element_size(Precision::bf16) % 256, 0);
    EXPECT_EQ(layout.offset_of(entry.tensor), entry.offset);
    end = entry.offset + tensors[static_cast<std::size_t>(entry.tensor)].elements;
  }
  EXPECT_LE(end, layout.elements);
  EXPECT_EQ(layout.entries.front().head_gradient, layout.elements);
  EXPECT_GE(layout.gradient_elements, layout.elements + tensors[0].elements);
  EXPECT_EQ(layout.offset_of(static_cast<int>(tensors.size())), -1);
}

TEST(Parameters, SizesAreCountedIn64Bits) {
  const ModelConfig config = {
      .layers = 96, .heads = 96, .hidden = 12288, .vocab = 50257, .max_seq_len = 2048, .tied = true};
  EXPECT_EQ(parameter_count(config), 174604259328);
  EXPECT_GT(element_count(config), parameter_count(config));
}

TEST(NormalNumbers, HaveTheMomentsOfTheNormalDistribution) {
  constexpr std::int64_t kCount = 1000000;
  std::vector<float> x(kCount);
  normal_numbers(x.data(), 3, 0, kCount, 1.0);
  double sum = 0, squares = 0, cubes = 0, fourths = 0, neighbours = 0;
  std::int64_t within_one = 0, within_two = 0, beyond_four = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]);
    sum += v, squares += v * v, cubes += v * v * v, fourths += v * v * v * v;
    if (i > 0) neighbours += v * static_cast<double>(x[i - 1]);
    within_one += std::abs(v) < 1 ? 1 : 0;
    within_two += std::abs(v) < 2 ? 1 : 0;
    beyond_four += std::abs(v) > 4 ? 1 : 0;
  }
  const double n = kCount;  // tolerances: five standard deviations
  EXPECT_NEAR(sum / n, 0, 0.005);
  EXPECT_NEAR(squares / n, 1, 0.0071);
  EXPECT_NEAR(cubes / n, 0, 0.02);
  EXPECT_NEAR(fourths / n, 3, 0.05);
  EXPECT_NEAR(neighbours / n, 0, 0.005);
  EXPECT_NEAR(static_cast<double>(within_one) / n, 0.682689, 0.0024);
  EXPECT_NEAR(static_cast<double>(within_two) / n, 0.954500, 0.0011);
  EXPECT_NEAR(static_cast<double>(beyond_four), 63.3, 40);
}

// By Box and Muller's formula and the functions of the library.
TEST(NormalNumbers, AreThoseOfTheFormula) {
  constexpr std::int64_t kCount = 100000;
  std::vector<float> x(kCount);
  normal_numbers(x.data(), 3, 7, kCount, 2.0);
  const std::uint64_t key = splitmix64(3);
  for (std::uint64_t k = 0; k < kCount; ++k) {
    const std::uint64_t bits = splitmix64(key + 7 + k);
    const double radius = (static_cast<double>(bits >> 32) + 1) * 0x1p-32;
    const double quarter_turns = static_cast<double>(bits & 0xFFFFFFFF) * 0x1p-30 - 2;
    const double expected = 2 * std::sqrt(-2 * std::log(radius)) * std::sin(quarter_turns * std::numbers::pi / 2);
    ASSERT_NEAR(static_cast<double>(x[k]), expected, 1e-6) << k;
  }
}

TEST(NormalNumbers, DependOnSeedAndPositionAlone) {
  std::vector<float> whole(1000), part(100), other(1000);
  normal_numbers(whole.data(), 5, 0, 1000, 0.5);
  normal_numbers(part.data(), 5, 700, 100, 0.5);
  normal_numbers(other.data(), 6, 0, 1000, 0.5);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 700));
  int equal = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) equal += whole[i] == other[i] ? 1 : 0;
  EXPECT_EQ(equal, 0);
}

TEST(Initialise, FollowsGpt2) {
  const ModelConfig config = small_model(false);
  for (const TensorInfo& tensor : model_tensors(config)) {
    const std::vector<float> values = initial(config, tensor, 1);
    const std::string kind = tensor.name.substr(tensor.name.find('.') + 1);
    if (!tensor.decays) {
      const float constant = kind.back() == 'w' ? 1.0F : 0.0F;
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [=](float v) { return v == constant; })) << tensor.name;
      continue;
    }
    const std::int64_t padding = kind == "wte" || kind == "headw" ? 126 * config.hidden : 0;
    EXPECT_TRUE(std::all_of(values.end() - padding, values.end(), [](float v) { return v == 0; })) << tensor.name;
    const auto random = static_cast<double>(tensor.elements - padding);
    double squares = 0;
    for (const float v : values) squares += static_cast<double>(v) * static_cast<double>(v);
    const bool residual = kind == "attprojw" || kind == "fcprojw";
    const double expected = residual ? 0.02 / std::sqrt(6.0) : 0.02;
    EXPECT_NEAR(std::sqrt(squares / random), expected, 5 * expected / std::sqrt(2 * random)) << tensor.name;
  }
}

TEST(Initialise, NoTwoTensorsAreEqualAndTyingChangesNothing) {
  const ModelConfig config = small_model(false);
  std::set<float> seen;
  std::size_t count = 0;
  for (const TensorInfo& tensor : model_tensors(config)) {
    if (!tensor.decays) continue;
    for (const float v : initial(config, tensor, 1)) {
      if (v == 0) continue;
      seen.insert(v);
      ++count;
    }
  }
  EXPECT_GT(seen.size(), count * 99 / 100);
  const std::vector<TensorInfo> tied = model_tensors(small_model(true));
  const std::vector<TensorInfo> untied = model_tensors(config);
  for (std::size_t t = 0; t < tied.size(); ++t)
    EXPECT_EQ(initial(small_model(true), tied[t], 9), initial(config, untied[t], 9)) << tied[t].name;
}

TEST(Initialise, ArenasOfAnyPartitionHoldTheSameTensors) {
  ModelConfig config = small_model(true);
  config.vocab = 60000;  // more than one piece of wte
  const std::unique_ptr<Device> device = make_cpu_device(2);
  const std::vector<TensorInfo> tensors = model_tensors(config);
  const auto units = static_cast<std::size_t>(unit_count(config));
  for (const std::size_t unit : {std::size_t{0}, std::size_t{2}, units - 1}) {
    std::vector<bool> held(units);
    held[unit] = true;
    const ArenaLayout layout = arena_layout(config, held);
    std::vector<float> arena(static_cast<std::size_t>(layout.elements));
    initialise_arena(*device, arena.data(), config, layout, 77);
    for (const ArenaLayout::Entry& entry : layout.entries) {
      const TensorInfo& tensor = tensors[static_cast<std::size_t>(entry.tensor)];
      const std::vector<float> expected = initial(config, tensor, 77);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), arena.begin() + entry.offset)) << tensor.name;
    }
  }
}

TEST(Parameters, TheNumberOfElementsIsTheSumOfTheTensors) {
  for (const bool tied : {true, false}) {
    for (const ModelConfig& config :
         {ModelConfig{.layers = 1, .heads = 1, .hidden = 3, .vocab = 5, .max_seq_len = 7, .tied = tied},
          ModelConfig{.layers = 5, .heads = 2, .hidden = 8, .vocab = 300, .max_seq_len = 1, .tied = tied}}) {
      std::int64_t sum = 0;
      for (const TensorInfo& tensor : model_tensors(config)) sum += tensor.elements;
      EXPECT_EQ(element_count(config), sum);
    }
  }
}

}  // namespace
