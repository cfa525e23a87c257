// The manifest of a checkpoint: what the run was, where it was, and what its files must be. It is written last, so a
// folder with a manifest is a complete checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "commands/cli/options.h"
#include "model/config.h"
#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

struct CheckpointManifest {
  struct File {
    std::string name;
    std::int64_t bytes = 0;
    std::string checksum;  // pipeline/train/file_agreement.h
  };

  std::int64_t step = 0;  // steps taken; the run goes on with this one (they count from 0)
  double written = 0;     // seconds since 1970
  ModelConfig model;
  // What the sample order follows from (data/sample_order.h), by the names of the options.
  std::map<std::string, std::int64_t> order;
  // What else the numbers of a run depend on; a resumed run may change it, and says so.
  std::map<std::string, std::string> training;
  std::string parameter_hash;  // of the memory that was written
  std::vector<File> files;
};

// Of a run with these options; step, time, hash and files are left to fill in. windows: of the training data.
CheckpointManifest manifest_of_run(const Options& options, const ModelConfig& model, const BatchShape& batch,
                                   std::int64_t windows);

std::string to_json(const CheckpointManifest& manifest);
// Throws std::invalid_argument saying what is wrong with the text.
CheckpointManifest manifest_from_json(const std::string& text);

// Throws std::invalid_argument naming the first setting of `now` that contradicts the checkpoint: sizes of the model,
// what changes the sample order, a total of `steps` that is reached already.
void require_same_run(const CheckpointManifest& saved, const CheckpointManifest& now, std::int64_t steps,
                      const std::string& checkpoint);
// One line for every setting that may change and did.
std::vector<std::string> changed_settings(const CheckpointManifest& saved, const CheckpointManifest& now);

}  // namespace train_gpt
