// The checkpoints of a run: DIR/checkpoints/step-<n>/ with model.bin, optimizer.bin and, written last, manifest.json.
//
// A checkpoint is written in step-<n>.partial and gets its name when all files are on the disk. Then older ones are
// renamed and removed. So however a run ends, the newest complete checkpoint is intact, and what is half written or
// half removed has another name. Newest means furthest on: by step, then by counter. Any number of ranks and any
// schedule can read it.
#pragma once

#include <string>
#include <vector>

#include "commands/run/checkpoint_manifest.h"
#include "commands/run/saving.h"
#include "data/tokenizer.h"

namespace train_gpt {

std::string checkpoint_folder(const std::string& output, std::int64_t step);

// Saves a checkpoint of the state after `manifest.step` steps; when it is complete, all but the newest `keep`
// checkpoints of the run `manifest.run` in `output` are removed, and nothing else. `manifest` is that of the run, with
// the parameters' hash; `tokenizer` is saved, too, and outlives what is returned.
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

// The folder of the newest checkpoint in `output`, judged by manifests alone; empty: none.
std::string newest_checkpoint(const std::string& output);
// Marks the newest checkpoint as the last before a spike of loss or norm: it is kept, whatever --keep says, until
// another one is marked. For rank 0.
void keep_before_spike(const std::string& output);
// True if `output` has checkpoints, complete or not.
bool has_checkpoints(const std::string& output);
// Removes what ended runs left half written or half removed. The run must own the folder (run_lock.h).
void remove_left_overs(const std::string& output);
// The names of the complete checkpoints in `output`, without copies under other names.
std::vector<std::string> own_checkpoints(const std::string& output);
// Renames checkpoints further on than `step`, so that they are not taken for the newest. Returns a line for each.
std::vector<std::string> set_aside_after(const std::string& output, std::int64_t step);

}  // namespace train_gpt
