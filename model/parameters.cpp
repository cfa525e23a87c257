#include "model/parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "model/normal_numbers.h"

namespace train_gpt {
namespace {

constexpr std::int64_t kArenaAlignment = 128;  // elements: 256 bytes of bf16

// Sizes are rows * columns, both in units of C, except for wte, wpe and headw.
struct KindTraits {
  TensorKind kind;
  const char* name;
  UnitKind unit;
  std::int64_t rows_in_hidden;     // rows / C; 0: vectors of columns_in_hidden * C
  std::int64_t columns_in_hidden;  // columns / C
};

constexpr std::array<KindTraits, 12> kLayerKinds = {{
    {TensorKind::ln1w, "ln1w", UnitKind::attention, 0, 1},
    {TensorKind::ln1b, "ln1b", UnitKind::attention, 0, 1},
    {TensorKind::qkvw, "qkvw", UnitKind::attention, 3, 1},
    {TensorKind::qkvb, "qkvb", UnitKind::attention, 0, 3},
    {TensorKind::attprojw, "attprojw", UnitKind::attention, 1, 1},
    {TensorKind::attprojb, "attprojb", UnitKind::attention, 0, 1},
    {TensorKind::ln2w, "ln2w", UnitKind::mlp, 0, 1},
    {TensorKind::ln2b, "ln2b", UnitKind::mlp, 0, 1},
    {TensorKind::fcw, "fcw", UnitKind::mlp, 4, 1},
    {TensorKind::fcb, "fcb", UnitKind::mlp, 0, 4},
    {TensorKind::fcprojw, "fcprojw", UnitKind::mlp, 1, 4},
    {TensorKind::fcprojb, "fcprojb", UnitKind::mlp, 0, 1},
}};

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool holds_padding(TensorKind kind) { return kind == TensorKind::wte || kind == TensorKind::headw; }

}  // namespace

std::vector<TensorInfo> model_tensors(const ModelConfig& config) {
  const std::int64_t C = config.hidden;
  const int head = first_head_unit(config);
  const int shards = head_shards(config);
  std::vector<TensorInfo> tensors;
  std::int64_t offset = 0;
  std::int64_t first_atom = 0;
  const auto append = [&](std::string name, TensorKind kind, int unit, std::int64_t elements, bool decays) {
    tensors.push_back({std::move(name), kind, unit, elements, offset, first_atom, decays});
    offset += elements;
    first_atom += tensors.back().atoms();
  };
  // One tensor per shard; first_unit owns the first, and each of the others is owned by the unit `step` further on.
  const auto append_shards = [&](const std::string& name, TensorKind kind, int first_unit, int step) {
    for (int k = 0; k < shards; ++k) {
      append(shards == 1 ? name : name + "." + std::to_string(k), kind, first_unit + k * step,
             vocabulary_shard(config, k).width * C, true);
      tensors.back().shard = k;
    }
  };
  append_shards("wte", TensorKind::wte, 0, 0);
  append("wpe", TensorKind::wpe, 0, config.max_seq_len * C, true);
  for (const KindTraits& kind : kLayerKinds) {
    const bool matrix = kind.rows_in_hidden > 0;
    const std::int64_t elements = (matrix ? kind.rows_in_hidden * C : 1) * kind.columns_in_hidden * C;
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      append(std::string("h").append(std::to_string(layer)).append(".").append(kind.name), kind.kind,
             static_cast<int>(1 + 2 * layer + (kind.unit == UnitKind::mlp ? 1 : 0)), elements, matrix);
  }
  append("lnfw", TensorKind::lnfw, head, C, false);
  append("lnfb", TensorKind::lnfb, head, C, false);
  if (!config.tied) append_shards("headw", TensorKind::headw, head, 1);
  return tensors;
}

const char* to_string(OptimizerKind optimizer) { return optimizer == OptimizerKind::muon ? "muon" : "adamw"; }

Matrices optimizer_matrices(const ModelConfig& config, const TensorInfo& tensor, OptimizerKind optimizer) {
  const auto kind = std::ranges::find_if(kLayerKinds, [&](const KindTraits& one) { return one.kind == tensor.kind; });
  if (optimizer != OptimizerKind::muon || kind == kLayerKinds.end() || kind->rows_in_hidden == 0) return {};
  const std::int64_t count = tensor.kind == TensorKind::qkvw ? 3 : 1;
  return {.count = count,
          .rows = kind->rows_in_hidden * config.hidden / count,
          .columns = kind->columns_in_hidden * config.hidden};
}

int tensor_index(const ModelConfig& config, TensorKind kind, std::int64_t piece) {
  const std::int64_t shards = head_shards(config);
  if (kind == TensorKind::wte) return static_cast<int>(piece);
  if (kind == TensorKind::wpe) return static_cast<int>(shards);
  const auto of_kind = static_cast<std::int64_t>(kind) - static_cast<std::int64_t>(TensorKind::ln1w);
  const std::int64_t first_of_layers = shards + 1;
  if (kind < TensorKind::lnfw) return static_cast<int>(first_of_layers + of_kind * config.layers + piece);
  constexpr auto kLayerTensors = static_cast<std::int64_t>(kLayerKinds.size());
  const std::int64_t of_head = of_kind - kLayerTensors;
  return static_cast<int>(first_of_layers + kLayerTensors * config.layers + of_head +
                          (kind == TensorKind::headw ? piece : 0));
}

std::int64_t elements_before_padding(const ModelConfig& config, const TensorInfo& tensor) {
  return holds_padding(tensor.kind) ? vocabulary_shard(config, tensor.shard).columns * config.hidden : tensor.elements;
}

// In closed form, since it checks headers of files, which may claim a million layers and contain none.
std::int64_t element_count(const ModelConfig& config) {
  const std::int64_t C = config.hidden;
  const std::int64_t over_vocab = config.tied ? 1 : 2;
  return (over_vocab * config.padded_vocab() + config.max_seq_len) * C + config.layers * (12 * C * C + 13 * C) + 2 * C;
}

std::int64_t atom_count(const ModelConfig& config) {
  const TensorInfo last = model_tensors(config).back();
  return last.first_atom + last.atoms();
}

const ArenaLayout::Entry* ArenaLayout::find(int tensor) const {
  const auto found = std::lower_bound(entries.begin(), entries.end(), tensor,
                                      [](const Entry& entry, int wanted) { return entry.tensor < wanted; });
  return found != entries.end() && found->tensor == tensor ? &*found : nullptr;
}

std::int64_t ArenaLayout::offset_of(int tensor) const {
  const Entry* entry = find(tensor);
  return entry == nullptr ? -1 : entry->offset;
}

std::int64_t arena_elements(const TensorInfo& tensor) { return round_up(tensor.elements, kArenaAlignment); }

ElementRange wte_range(const ModelConfig& config, const ArenaLayout& layout, int first, int last) {
  const std::int64_t begin = layout.offset_of(tensor_index(config, TensorKind::wte, first));
  const ArenaLayout::Entry& end = *layout.find(tensor_index(config, TensorKind::wte, last - 1));
  return {.offset = begin, .elements = end.offset + end.info.elements - begin};
}

ArenaLayout arena_layout(const ModelConfig& config, const std::vector<bool>& units, OptimizerKind optimizer) {
  if (static_cast<int>(units.size()) != unit_count(config))
    throw std::invalid_argument("arena_layout: " + std::to_string(units.size()) + " flags for " +
                                std::to_string(unit_count(config)) + " units");
  const auto read_by_head = [&](const TensorInfo& tensor) {
    return config.tied && tensor.kind == TensorKind::wte &&
           units[static_cast<std::size_t>(first_head_unit(config) + tensor.shard)];
  };
  const std::vector<TensorInfo> tensors = model_tensors(config);
  ArenaLayout layout;
  layout.optimizer = optimizer;
  for (int t = 0; t < static_cast<int>(tensors.size()); ++t) {
    const TensorInfo& tensor = tensors[static_cast<std::size_t>(t)];
    const bool owned = units[static_cast<std::size_t>(tensor.unit)];
    if (!owned && !read_by_head(tensor)) continue;
    layout.entries.push_back(
        {.tensor = t, .owned = owned, .info = tensor, .matrices = optimizer_matrices(config, tensor, optimizer)});
  }
  const auto place = [&](bool matrices) {
    for (ArenaLayout::Entry& entry : layout.entries) {
      if ((entry.matrices.count > 0) != matrices) continue;
      entry.offset = layout.elements;
      layout.elements += arena_elements(entry.info);
    }
  };
  place(false);
  layout.second_elements = layout.elements;
  place(true);
  layout.gradient_elements = layout.elements;
  for (ArenaLayout::Entry& entry : layout.entries) {
    if (!entry.owned || !read_by_head(entry.info)) continue;
    entry.head_gradient = layout.gradient_elements;
    layout.gradient_elements += arena_elements(entry.info);
  }
  return layout;
}

void initialise(float* out, const ModelConfig& config, const TensorInfo& tensor, std::uint64_t seed) {
  initialise_range(out, config, tensor, seed, 0, tensor.elements);
}

void initialise_range(float* out, const ModelConfig& config, const TensorInfo& tensor, std::uint64_t seed,
                      std::int64_t begin, std::int64_t count) {
  if (!tensor.decays) {
    const bool ones =
        tensor.kind == TensorKind::ln1w || tensor.kind == TensorKind::ln2w || tensor.kind == TensorKind::lnfw;
    std::fill_n(out, count, ones ? 1.0F : 0.0F);
    return;
  }
  const bool residual = tensor.kind == TensorKind::attprojw || tensor.kind == TensorKind::fcprojw;
  const double scale = residual ? 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers)) : 0.02;
  const std::int64_t filled = std::clamp<std::int64_t>(elements_before_padding(config, tensor) - begin, 0, count);
  normal_numbers(out, seed, static_cast<std::uint64_t>(tensor.offset + begin), filled, scale);
  std::fill(out + filled, out + count, 0.0F);
}

void initialise_arena(Device& device, float* values, const ModelConfig& config, const ArenaLayout& layout,
                      std::uint64_t seed) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  std::vector<float> host(static_cast<std::size_t>(kPiece));
  const std::vector<TensorInfo> tensors = model_tensors(config);
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const TensorInfo& tensor = tensors[static_cast<std::size_t>(entry.tensor)];
    const std::int64_t skipped = entry.info.offset - tensor.offset;  // if the entry is a part of it
    for (std::int64_t begin = 0; begin < entry.info.elements; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, entry.info.elements - begin);
      device.run_on_host((count + kAtomElements - 1) / kAtomElements, [&](std::int64_t part) {
        const std::int64_t first = part * kAtomElements;
        initialise_range(host.data() + first, config, tensor, seed, skipped + begin + first,
                         std::min(kAtomElements, count - first));
      });
      device.to_device(values + entry.offset + begin, host.data(), count * std::int64_t{sizeof(float)});
    }
  }
}

}  // namespace train_gpt
