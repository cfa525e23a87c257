// The inputs of a run, before anything is decided: sizes, data, and the checkpoint from which it goes on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/run/checkpoints.h"
#include "commands/run/run_folder.h"
#include "commands/run/session.h"
#include "commands/run/setup.h"
#include "data/multiple_choice.h"
#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "pipeline/train/groups.h"

namespace train_gpt {

struct RunInputs {
  RunFolder* folder = nullptr;  // null unless the run owns its folder; not owned
  Layout layout;
  ModelConfig model;
  std::optional<Schedule> named;  // none: --schedule auto
  std::optional<TokenDataset> train_data;
  std::optional<TokenDataset> val_data;
  std::int64_t val_batches = 0;        // of val_data
  std::optional<Tokenizer> tokenizer;  // of the data, or of --init; none: ids are shown as numbers
  std::vector<Question> questions;     // --multiple-choice
  CheckpointManifest manifest;         // of this run, for its checkpoints
  FoundCheckpoint resumed;             // the checkpoint from which it goes on; empty folder: none
  std::vector<std::string> notices;    // for people
};

// Opens and checks everything that `options` name, --resume included. `options.run.output` is a folder that exists,
// `options.model.init_file` the file that agreed_init_file() found (setup.h), `folder` null unless the run owns it.
// Collective; throws as Session::together.
RunInputs open_inputs(Session& session, const Options& options, RunFolder* folder);

// Checks that there is room for what the run will write (disk_space.h), and adds notices to the inputs. Collective.
void look_for_disk_space(Session& session, const Options& options, RunInputs& inputs);

}  // namespace train_gpt
