// A folder with a run's state, written by all ranks: model.bin, optimizer.bin, and a seal that they are complete.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "commands/run/checkpoint_manifest.h"
#include "kernels/communicator.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

inline constexpr const char* kModelName = "model.bin";
inline constexpr const char* kOptimizerName = "optimizer.bin";
inline constexpr const char* kUpdateName = "update.bin";  // --delay-correction: the last update
// Without a flush: the parameters of so many updates before the newest; previous.bin, previous-2.bin ..
std::string previous_name(int age);

struct Saving {
  std::string folder;
  bool moments = true;  // optimizer.bin, too
  int previous = 0;     // previous.bin, too: so many versions of the parameters
  bool update = false;  // update.bin, too
  // For rank 0, when the files are on the disk: writes into `partial` what seals them, such as a manifest.
  std::function<void(const std::string& partial, const std::vector<CheckpointManifest::File>& files)> seal;
  // For rank 0, after the folder has its name.
  std::function<void()> afterwards = [] {};
  std::string told;  // to people, after all is done
};

// Writes the folder as `folder`.partial and renames it when it is complete. Collective. Errors: std::runtime_error
// naming the file.
void save(Trainer& trainer, Communicator& world, const ModelConfig& model, const Saving& saving);

// The stages of save(), for callers that take them one by one (background_saving.h).
struct SavedFile {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> hashes;  // of the blocks that this rank read
};
// The files to be written, with their sizes.
std::vector<SavedFile> files_of(const Saving& saving, const ModelConfig& model);
// Reads this rank's share of the file at `path` back from the disk. Throws std::runtime_error if the file cannot be
// read or has another size.
void read_back(SavedFile& file, const std::string& path, int rank, int ranks);
// Size and checksum of each file, for the manifest. Collective.
std::vector<CheckpointManifest::File> checksums_of(Communicator& world, const std::vector<SavedFile>& files);
// For rank 0: seals the folder and gives it its name.
void complete(const Saving& saving, const std::vector<CheckpointManifest::File>& files);

}  // namespace train_gpt
