// The trainer's parameters and moments: initial values, files, hash.
#include "pipeline/trainer.h"

#include "pipeline/file_agreement.h"

namespace train_gpt {

void Trainer::initialise(std::uint64_t seed) {
  const std::vector<TensorInfo> tensors = model_tensors(plan_.request.model);
  const ArenaLayout& layout = memory_.plan().layout;
  std::vector<float> values;
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const TensorInfo& tensor = tensors[static_cast<std::size_t>(entry.tensor)];
    values.resize(static_cast<std::size_t>(tensor.elements));
    train_gpt::initialise(values.data(), plan_.request.model, tensor, seed);
    device_.to_device(memory_.parameters() + entry.offset, values.data(),
                      tensor.elements * static_cast<std::int64_t>(sizeof(float)));
  }
  refresh_low_parameters();
}

void Trainer::load(const ModelFile& file) {
  file.read_arena(device_, memory_.parameters(), memory_.plan().layout);
  refresh_low_parameters();
}

void Trainer::load_moments(const OptimizerFile& file) {
  file.read_arenas(device_, memory_.first_moment(), memory_.second_moment(), memory_.plan().layout);
}

void Trainer::refresh_low_parameters() {
  if (plan_.request.precision == Precision::fp32) return;
  device_.from_float(memory_.low_parameters(), memory_.parameters(), memory_.plan().layout.elements);
}

void Trainer::save(const std::string& path, Precision precision) {
  const ModelConfig& model = plan_.request.model;
  write_together(
      path, [&] { create_model_file(path, model, precision); },
      [&] { write_model_tensors(device_, path, model, precision, memory_.plan().layout, memory_.parameters()); });
}

void Trainer::save_moments(const std::string& path) {
  const ModelConfig& model = plan_.request.model;
  write_together(
      path, [&] { create_optimizer_file(path, model); },
      [&] {
        write_moments(device_, path, model, memory_.plan().layout, memory_.first_moment(), memory_.second_moment());
      });
}

// One rank creates the file, all owners write their ranges, one rank publishes it.
void Trainer::write_together(const std::string& path, const std::function<void()>& create,
                             const std::function<void()>& write_own) {
  Communicator& world = *groups_.world;
  if (world.rank() == 0) create();
  world.barrier();
  if (groups_.owns_parameters()) write_own();
  world.barrier();
  if (world.rank() == 0) publish(path);
  world.barrier();
}

std::string Trainer::parameter_hash() {
  const ModelConfig& model = plan_.request.model;
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(atom_count(model)), 0);
  if (groups_.owns_parameters()) {
    parameter_hashes(device_, hashes, model, memory_.plan().layout, memory_.parameters());
  }
  merge_hashes(*groups_.world, hashes);
  return combined_hash(hashes);
}

}  // namespace train_gpt
