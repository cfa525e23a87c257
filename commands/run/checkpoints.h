// The checkpoints of a run: DIR/checkpoints/step-<n>/ with model.bin, optimizer.bin and, written last, manifest.json.
//
// A checkpoint is written in step-<n>.partial, renamed when both files are on the disk, and complete once it has its
// manifest. Older ones are removed after that. So whenever a run is ended, by whatever, the newest complete checkpoint
// is as good as it was. Any number of ranks, any schedule can read it.
#pragma once

#include <string>
#include <vector>

#include "commands/run/checkpoint_manifest.h"
#include "kernels/communicator.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

// Writes the trainer's state after `manifest.step` steps, then removes all but the newest `keep` checkpoints of
// `output`. `manifest` is that of the run. Collective. Returns the folder. Errors: std::runtime_error naming the file.
std::string write_checkpoint(Trainer& trainer, Communicator& world, const std::string& output,
                             CheckpointManifest manifest, int keep);

struct FoundCheckpoint {
  std::string folder;  // empty: none
  CheckpointManifest manifest;
  std::vector<std::string> passed_over;  // "FOLDER: why it cannot be used"
};

// `wanted`: a checkpoint's folder, or "latest": the newest of `output` whose files are what its manifest says.
// Collective; the same answer on all ranks.
FoundCheckpoint find_checkpoint(Communicator& world, const std::string& wanted, const std::string& output);

// Loads parameters and moments. The files have been verified. Throws std::invalid_argument.
void load_checkpoint(Trainer& trainer, const FoundCheckpoint& checkpoint);

}  // namespace train_gpt
