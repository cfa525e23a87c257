#include "model/optimizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "data/splitmix64.h"

namespace train_gpt {
namespace {

// Calls visit(tensor, offset in the arena) for every tensor that the rank holds; owned_only: without the copy of a tied
// wte.
template <class Visit>
void for_each_tensor(const ArenaLayout& layout, bool owned_only, const Visit& visit) {
  for (const ArenaLayout::Entry& entry : layout.entries)
    if (entry.owned || !owned_only) visit(entry.info, entry.offset);
}

// Four independent chains, since one would wait for its multiplications.
std::uint64_t hash_floats(std::span<const float> values) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  std::array<std::uint64_t, 4> chains = {1, 2, 3, 4};
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t& chain = chains[i % 4];
    chain = std::rotl((chain ^ std::bit_cast<std::uint32_t>(values[i])) * kMultiplier, 29);
  }
  std::uint64_t hash = splitmix64(values.size());
  for (const std::uint64_t chain : chains) hash = splitmix64(hash ^ chain);
  return hash;
}

// Calls visit(tensors) for the tensors of the entries that `takes` accepts, as many at once as one operation takes.
template <class Takes, class Visit>
void for_each_batch(const ArenaLayout& layout, const Takes& takes, const Visit& visit) {
  std::array<Device::ArenaTensor, kTensorsAtOnce> batch;
  std::size_t count = 0;
  const auto take = [&] {
    if (count > 0) visit(std::span<const Device::ArenaTensor>(batch.data(), count));
    count = 0;
  };
  for (const ArenaLayout::Entry& entry : layout.entries) {
    if (!takes(entry)) continue;
    batch[count++] = {.offset = entry.offset, .elements = entry.info.elements, .decays = entry.info.decays};
    if (count == batch.size()) take();
  }
  take();
}

bool is_owned(const ArenaLayout::Entry& entry) { return entry.owned; }
bool is_adamws(const ArenaLayout::Entry& entry) { return entry.matrices.count == 0; }

// Calls visit(matrix) for every matrix that Muon updates.
template <class Visit>
void for_each_matrix(Device& device, const OptimizerArenas& arenas, const ArenaLayout& layout,
                     const AdamWScalars* scalars, const MuonConstants& constants, const Visit& visit) {
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const Matrices& matrices = entry.matrices;
    for (std::int64_t i = 0; i < matrices.count; ++i) {
      const std::int64_t offset = entry.offset + i * matrices.rows * matrices.columns;
      const std::int64_t low_offset = offset * element_size(device.precision());
      visit(MuonMatrix{.new_values = arenas.new_values + offset,
                       .low = arenas.low == nullptr ? nullptr : static_cast<char*>(arenas.low) + low_offset,
                       .values = arenas.values + offset,
                       .from = {.average = arenas.m + offset,
                                .gradient = arenas.gradients + offset,
                                .scalars = scalars,
                                .momentum = constants.momentum},
                       .rows = matrices.rows,
                       .columns = matrices.columns});
    }
  }
}

// Stores M in its place in the arena of first moments.
void store_average(Device& device, const OptimizerArenas& arenas, const MuonMatrix& matrix) {
  device.muon_average(arenas.m + (matrix.from.average - arenas.m), matrix.from, matrix.rows * matrix.columns);
}

}  // namespace

void sum_tied_gradients(Device& device, const ArenaLayout& layout, float* gradients) {
  for (const ArenaLayout::Entry& entry : layout.entries) {
    if (entry.head_gradient < 0) continue;
    device.add(gradients + entry.offset, gradients + entry.head_gradient, entry.info.elements);
  }
}

std::int64_t owned_atoms(const ArenaLayout& layout) {
  std::int64_t atoms = 0;
  for_each_tensor(layout, /*owned_only=*/true,
                  [&](const TensorInfo& tensor, std::int64_t) { atoms += tensor.atoms(); });
  return atoms;
}

void gradient_squared_sums(Device& device, std::span<double> sums, double* scratch, double* host_scratch,
                           const ArenaLayout& layout, const float* gradients) {
  std::int64_t atoms = 0;
  for_each_batch(layout, is_owned, [&](std::span<const Device::ArenaTensor> tensors) {
    device.squared_sums_all(scratch + atoms, gradients, tensors);
    for (const Device::ArenaTensor& tensor : tensors) atoms += (tensor.elements + kAtomElements - 1) / kAtomElements;
  });
  device.to_host(host_scratch, scratch, atoms * std::int64_t{sizeof(double)});
  const double* next = host_scratch;
  for_each_tensor(layout, /*owned_only=*/true, [&](const TensorInfo& tensor, std::int64_t) {
    std::copy_n(next, tensor.atoms(), sums.begin() + tensor.first_atom);
    next += tensor.atoms();
  });
}

double gradient_norm(std::span<const double> sums) {
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

float clip_factor(double norm, double grad_clip) {
  if (grad_clip <= 0 || !(norm > grad_clip)) return 1.0F;
  return static_cast<float>(grad_clip / norm);
}

AdamWScalars adamw_scalars(const AdamWConstants& constants, double learning_rate, std::int64_t step, float clip) {
  const auto exponent = static_cast<double>(step + 1);
  AdamWScalars scalars;
  scalars.learning_rate = static_cast<float>(learning_rate);
  scalars.beta1_correction = static_cast<float>(1.0 - std::pow(static_cast<double>(constants.beta1), exponent));
  scalars.beta2_correction = static_cast<float>(1.0 - std::pow(static_cast<double>(constants.beta2), exponent));
  scalars.gradient_scale = clip;
  return scalars;
}

void adamw_step(Device& device, const OptimizerArenas& arenas, const ArenaLayout& layout, const AdamWScalars* scalars,
                const AdamWConstants& constants, bool keep_moments) {
  for_each_batch(layout, is_adamws, [&](std::span<const Device::ArenaTensor> tensors) {
    device.adamw_all(arenas.new_values, arenas.low, arenas.m, arenas.v, arenas.values, arenas.gradients, tensors,
                     scalars, constants, keep_moments);
  });
}

void adamw_moments_step(Device& device, const OptimizerArenas& arenas, const ArenaLayout& layout,
                        const AdamWScalars* scalars, const AdamWConstants& constants) {
  for_each_batch(layout, is_adamws, [&](std::span<const Device::ArenaTensor> tensors) {
    device.adamw_moments_all(arenas.m, arenas.v, arenas.gradients, tensors, scalars, constants);
  });
}

void muon_step(Device& device, const OptimizerArenas& arenas, const ArenaLayout& layout, const AdamWScalars* scalars,
               const MuonConstants& constants, bool keep_averages, void* scratch) {
  for_each_matrix(device, arenas, layout, scalars, constants, [&](const MuonMatrix& matrix) {
    muon_matrix_step(device, matrix, constants, scratch);
    if (!keep_averages) store_average(device, arenas, matrix);
  });
}

void muon_averages_step(Device& device, const OptimizerArenas& arenas, const ArenaLayout& layout,
                        const AdamWScalars* scalars, const MuonConstants& constants) {
  for_each_matrix(device, arenas, layout, scalars, constants,
                  [&](const MuonMatrix& matrix) { store_average(device, arenas, matrix); });
}

void parameter_hashes(Device& device, std::span<std::uint64_t> hashes, const ArenaLayout& layout, const float* values,
                      bool owned_only) {
  std::vector<float> atom(static_cast<std::size_t>(kAtomElements));
  for_each_tensor(layout, owned_only, [&](const TensorInfo& tensor, std::int64_t offset) {
    for (std::int64_t a = 0; a < tensor.atoms(); ++a) {
      const std::int64_t begin = a * kAtomElements;
      const std::int64_t count = std::min(kAtomElements, tensor.elements - begin);
      device.to_host(atom.data(), values + offset + begin, count * std::int64_t{sizeof(float)});
      hashes[static_cast<std::size_t>(tensor.first_atom + a)] =
          hash_floats({atom.data(), static_cast<std::size_t>(count)});
    }
  });
}

std::string combined_hash(std::span<const std::uint64_t> hashes) {
  std::uint64_t hash = splitmix64(hashes.size());
  for (const std::uint64_t atom : hashes) hash = splitmix64(hash ^ atom);
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (int digit = 15; digit >= 0; --digit, hash >>= 4) text[static_cast<std::size_t>(digit)] = kDigits[hash & 15];
  return text;
}

}  // namespace train_gpt
