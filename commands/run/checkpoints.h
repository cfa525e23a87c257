// The checkpoints of a run: DIR/checkpoints/step-<n>/ with model.bin, optimizer.bin and, written last, manifest.json.
//
// A checkpoint is written in step-<n>.partial and gets its name when all files are on the disk. Older ones are removed
// after that, each under another name first. So whenever a run is ended, by whatever, the newest complete checkpoint is
// as good as it was, and what is half written or half removed is known by its name. Newest means furthest on: step,
// then counter. Any number of ranks, any schedule can read it.
#pragma once

#include <string>
#include <vector>

#include "commands/run/checkpoint_manifest.h"
#include "commands/run/saving.h"
#include "data/tokenizer.h"

namespace train_gpt {

std::string checkpoint_folder(const std::string& output, std::int64_t step);

// A checkpoint of the state after `manifest.step` steps; when it is whole, all but the newest `keep` checkpoints of the
// run `manifest.run` in `output` are removed, and nothing else. `manifest` is that of the run, with the parameters'
// hash; `tokenizer` goes along, and outlives what is returned.
Saving checkpoint_saving(const std::string& output, CheckpointManifest manifest, int keep,
                         const std::optional<Tokenizer>& tokenizer);

struct FoundCheckpoint {
  std::string folder;  // empty: none
  CheckpointManifest manifest;
  std::vector<std::string> passed_over;  // "FOLDER: why it cannot be used"
};

// `wanted`: a checkpoint's folder, or "latest" or "auto": the newest of `output` whose files are what its manifest
// says. Collective; the same answer on all ranks.
FoundCheckpoint find_checkpoint(Communicator& world, const std::string& wanted, const std::string& output);

// Loads parameters and moments. The files have been verified. Throws std::invalid_argument.
void load_checkpoint(Trainer& trainer, const FoundCheckpoint& checkpoint);

// The folder of the checkpoint of `output` that is furthest on, by its manifest alone; empty: none.
std::string newest_checkpoint(const std::string& output);
// The newest checkpoint is the last before a spike of loss or norm: it stays, whatever --keep says, until it is the
// turn of another one. For rank 0.
void keep_before_spike(const std::string& output);
// True if `output` has checkpoints, complete or not.
bool has_checkpoints(const std::string& output);
// What is half written or half removed, of runs of this folder that were ended: the run is alone in it (run_lock.h).
void remove_left_overs(const std::string& output);
// The names of the complete checkpoints in `output` that have names of ours.
std::vector<std::string> own_checkpoints(const std::string& output);
// Renames those that are further on than `step`, so that they are not taken for the newest. Returns a line for each.
std::vector<std::string> set_aside_after(const std::string& output, std::int64_t step);

}  // namespace train_gpt
