// A folder with a run's state in it, written by all ranks: model.bin, optimizer.bin, and what says that they are whole.
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
  // For rank 0, when the files are on the disk: writes beside them, in `partial`, what names them.
  std::function<void(const std::string& partial, const std::vector<CheckpointManifest::File>& files)> seal;
  // For rank 0, when the folder has its name.
  std::function<void()> afterwards = [] {};
  std::string told;  // to people, when all is done
};

// Writes `folder` beside its name, from which it follows when all is there. Collective. Errors: std::runtime_error
// naming the file.
void save(Trainer& trainer, Communicator& world, const ModelConfig& model, const Saving& saving);

// The steps of it, for who takes them one by one.
struct SavedFile {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> hashes;  // of the blocks that this rank read
};
// The files of it, with their sizes.
std::vector<SavedFile> files_of(const Saving& saving, const ModelConfig& model);
// Reads this rank's share of the file at `path`. Throws std::runtime_error where it cannot be read, or has another
// size.
void read_back(SavedFile& file, const std::string& path, int rank, int ranks);
// Collective: what the manifest says of them.
std::vector<CheckpointManifest::File> checksums_of(Communicator& world, const std::vector<SavedFile>& files);
// For rank 0: seals it, and gives it its name.
void complete(const Saving& saving, const std::vector<CheckpointManifest::File>& files);

}  // namespace train_gpt
