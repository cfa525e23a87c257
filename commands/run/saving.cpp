#include "commands/run/saving.h"

#include <filesystem>
#include <stdexcept>

#include "commands/run/folder_swap.h"
#include "pipeline/train/file_agreement.h"

namespace train_gpt {

void save(Trainer& trainer, Communicator& world, const Saving& saving) {
  const std::string partial = saving.folder + kPartial;
  if (world.rank() == 0) make_partial(saving.folder);
  world.barrier();
  trainer.save(partial + "/" + kModelName, Precision::fp32);
  if (saving.moments) trainer.save_moments(partial + "/" + kOptimizerName);
  std::vector<CheckpointManifest::File> files;
  for (const char* name : {kModelName, kOptimizerName}) {
    if (name == kOptimizerName && !saving.moments) continue;
    const std::string path = partial + "/" + name;
    const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
    files.push_back({name, bytes, file_checksum(world, path, bytes)});
    if (files.back().checksum.empty()) {
      throw std::runtime_error(path + ": cannot be read back by all ranks; do they share this folder?");
    }
  }
  if (world.rank() == 0) {
    saving.seal(partial, files);
    take_place(saving.folder);
    saving.afterwards();
  }
  world.barrier();
}

}  // namespace train_gpt
