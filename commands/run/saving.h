// A folder with a run's state in it, written by all ranks: model.bin, optimizer.bin, and what says that they are whole.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands/run/checkpoint_manifest.h"
#include "kernels/communicator.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

inline constexpr const char* kModelName = "model.bin";
inline constexpr const char* kOptimizerName = "optimizer.bin";

struct Saving {
  std::string folder;
  bool moments = true;  // optimizer.bin, too
  // For rank 0, when the files are on the disk: writes beside them, in `partial`, what names them.
  std::function<void(const std::string& partial, const std::vector<CheckpointManifest::File>& files)> seal;
  // For rank 0, when the folder has its name.
  std::function<void()> afterwards = [] {};
};

// Writes `folder` beside its name, from which it follows when all is there. Collective. Errors: std::runtime_error
// naming the file.
void save(Trainer& trainer, Communicator& world, const Saving& saving);

}  // namespace train_gpt
