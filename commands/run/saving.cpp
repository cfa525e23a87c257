#include "commands/run/saving.h"

#include <stdexcept>

#include "commands/run/folder_swap.h"
#include "model/checkpoint.h"
#include "model/file_checksum.h"
#include "model/optimizer.h"
#include "model/range_file.h"
#include "pipeline/train/file_agreement.h"

namespace train_gpt {

std::string previous_name(int age) { return age == 1 ? "previous.bin" : "previous-" + std::to_string(age) + ".bin"; }

std::vector<SavedFile> files_of(const Saving& saving, const ModelConfig& model) {
  std::vector<SavedFile> files = {{kModelName, model_file_bytes(model, Precision::fp32), {}}};
  if (saving.moments) files.push_back({kOptimizerName, optimizer_file_bytes(model), {}});
  for (int age = 1; age <= saving.previous; ++age) {
    files.push_back({previous_name(age), model_file_bytes(model, Precision::fp32), {}});
  }
  if (saving.update) files.push_back({kUpdateName, model_file_bytes(model, Precision::fp32), {}});
  return files;
}

void read_back(SavedFile& file, const std::string& path, int rank, int ranks) {
  const auto fail = [&](const std::string& why) {
    throw std::runtime_error(path + ": cannot be read back by rank " + std::to_string(rank) +
                             "; do all ranks share this folder? " + why);
  };
  try {
    const auto bytes = static_cast<std::int64_t>(MappedFile(path).bytes().size());
    if (bytes != file.bytes) fail("It has " + std::to_string(bytes) + " bytes");
    file.hashes = block_hashes(path, rank, ranks);
  } catch (const std::invalid_argument& error) {
    fail(error.what());
  }
}

std::vector<CheckpointManifest::File> checksums_of(Communicator& world, const std::vector<SavedFile>& files) {
  std::vector<CheckpointManifest::File> all;
  for (const SavedFile& file : files) {
    std::vector<std::uint64_t> hashes = file.hashes;
    one_hot_sum_hashes(world, hashes);
    all.push_back({file.name, file.bytes, combined_hash(hashes)});
  }
  return all;
}

void complete(const Saving& saving, const std::vector<CheckpointManifest::File>& files) {
  saving.seal(saving.folder + kPartial, files);
  take_place(saving.folder);
  saving.afterwards();
}

void save(Trainer& trainer, Communicator& world, const ModelConfig& model, const Saving& saving) {
  const std::string partial = saving.folder + kPartial + "/";
  if (world.rank() == 0) make_partial(saving.folder);
  world.barrier();
  trainer.save(partial + kModelName, Precision::fp32);
  if (saving.moments) trainer.save_moments(partial + kOptimizerName);
  for (int age = 1; age <= saving.previous; ++age) trainer.save_previous(partial + previous_name(age), age);
  if (saving.update) trainer.save_update(partial + kUpdateName);
  std::vector<SavedFile> files = files_of(saving, model);
  for (SavedFile& file : files) read_back(file, partial + file.name, world.rank(), world.size());
  const std::vector<CheckpointManifest::File> written = checksums_of(world, files);
  if (world.rank() == 0) complete(saving, written);
  world.barrier();
}

}  // namespace train_gpt
