// The trainer's parameters and moments: initial values, files, hash.
#include "pipeline/train/trainer.h"

#include <algorithm>
#include <stdexcept>

#include "pipeline/train/file_agreement.h"

namespace train_gpt {

void Trainer::initialise(std::uint64_t seed) {
  initialise_arena(device_, memory_.parameters(), plan_.request.model, held(), seed);
  refresh_working_parameters();
  copy_to_previous();
}

void Trainer::load(const ModelFile& file) {
  file.read_arena(device_, memory_.parameters(), held());
  refresh_working_parameters();
  copy_to_previous();
}

void Trainer::load_moments(const OptimizerFile& file) {
  file.read_arenas(device_, memory_.first_moment(), memory_.second_moment(),
                   shards() ? shard_.in_shard : memory_.plan().layout);
}

void Trainer::refresh_working_parameters() {
  for (std::size_t i = 0; i < memory_.plan().sections.size(); ++i) refresh_working_parameters(static_cast<int>(i));
}

void Trainer::refresh_working_parameters(int section) {
  const Precision precision = plan_.request.precision;
  const Section& whole = memory_.plan().sections[static_cast<std::size_t>(section)];
  if (precision == Precision::fp32 || !whole.has_parameters || has_parts()) return;
  // One by one: nobody has written what lies between two tensors.
  for (const int index : whole.entries) {
    const ArenaLayout::Entry& entry = memory_.plan().layout.entries[static_cast<std::size_t>(index)];
    char* low = static_cast<char*>(memory_.working_parameters()) + entry.offset * element_size(precision);
    device_.from_float(low, memory_.parameters() + entry.offset, entry.info.elements);
  }
}

const ArenaLayout* Trainer::written_parameters() const { return owns_held() ? &held() : nullptr; }

const ArenaLayout* Trainer::written_moments() const {
  if (!shards()) return groups_.owns_parameters() ? &memory_.plan().layout : nullptr;
  return groups_.is_first_of_mirrored() ? &shard_.in_shard : nullptr;
}

void Trainer::save(const std::string& path, Precision precision) {
  const ModelConfig& model = plan_.request.model;
  finish_gathers();
  write_together(
      path, [&] { create_model_file(path, model, precision); },
      [&] {
        const ArenaLayout* layout = written_parameters();
        if (layout == nullptr) return;
        write_model_tensors(device_, path, model, precision, *layout, memory_.parameters());
      });
}

void Trainer::save_moments(const std::string& path) {
  const ModelConfig& model = plan_.request.model;
  write_together(
      path, [&] { create_optimizer_file(path, model, plan_.request.optimizer); },
      [&] {
        const ArenaLayout* layout = written_moments();
        if (layout == nullptr) return;
        write_moments(device_, path, model, *layout, memory_.first_moment(), memory_.second_moment());
      });
}

// One rank creates the file, all owners write their ranges, one rank publishes it.
void Trainer::write_together(const std::string& path, const std::function<void()>& create,
                             const std::function<void()>& write_own) {
  Communicator& world = *groups_.world;
  if (world.rank() == 0) create();
  world.barrier();
  write_own();
  world.barrier();
  if (world.rank() == 0) publish(path);
  world.barrier();
}

std::string Trainer::parameter_hash() {
  finish_gathers();
  const ModelConfig& model = plan_.request.model;
  const auto atoms = static_cast<std::size_t>(atom_count(model));
  std::vector<std::uint64_t> mine(atoms, 0);
  parameter_hashes(device_, mine, held(), memory_.parameters(), /*owned_only=*/false);
  std::vector<std::uint64_t> hashes(atoms, 0);
  for (const ArenaLayout::Entry& entry : held().entries) {
    if (!entry.owned || !owns_held()) continue;
    std::copy_n(mine.begin() + entry.info.first_atom, entry.info.atoms(), hashes.begin() + entry.info.first_atom);
  }
  one_hot_sum_hashes(*groups_.world, hashes);
  check_copies(mine, hashes);
  return combined_hash(hashes);
}

// Replicas, the two directions of a bidirectional schedule and the ends of a tied embedding hold copies of parameters,
// which take the same steps: `mine`, the hashes of this rank's arena, must be those of the owners.
void Trainer::check_copies(const std::vector<std::uint64_t>& mine, const std::vector<std::uint64_t>& owners) {
  const std::vector<TensorInfo> tensors = model_tensors(plan_.request.model);
  std::vector<double> drifted(static_cast<std::size_t>(groups_.world->size()), 0.0);  // 1 + a tensor; 0: none
  for (const ArenaLayout::Entry& entry : held().entries) {
    const auto begin = mine.begin() + entry.info.first_atom;
    if (std::equal(begin, begin + entry.info.atoms(), owners.begin() + entry.info.first_atom)) continue;
    drifted[static_cast<std::size_t>(groups_.world->rank())] = 1 + entry.tensor;
    break;
  }
  groups_.world->one_hot_sum(drifted);
  for (std::size_t rank = 0; rank < drifted.size(); ++rank) {
    if (drifted[rank] == 0) continue;
    throw std::runtime_error("rank " + std::to_string(rank) + " holds another " +
                             tensors[static_cast<std::size_t>(drifted[rank]) - 1].name +
                             " than the rank that owns it: copies of one parameter have drifted apart");
  }
}

}  // namespace train_gpt
