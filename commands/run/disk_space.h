// Before the first step: whether what a run will write has room where it is to go.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commands/cli/options.h"
#include "model/config.h"

namespace train_gpt {

// Space in bytes.
struct DiskSpace {
  std::int64_t free = 0;
  std::int64_t largest_file = 0;       // the limit of the system (ulimit -f); 0: none
  std::int64_t own_checkpoints = 0;    // how many the run that goes on has there already
  std::int64_t overwritten_bytes = 0;  // given up as the first checkpoint is there
};

// The folder has to exist. Throws std::runtime_error naming it.
DiskSpace disk_space(const std::string& folder, const RunOptions& run);

// Throws std::invalid_argument where not even one checkpoint and the models that remain fit, or one file is larger than
// the system lets it be. Returns a line where --keep checkpoints and the one that is being written do not fit.
std::vector<std::string> check_disk_space(const DiskSpace& space, const RunOptions& run, const ModelConfig& model,
                                          bool keeps_best);

}  // namespace train_gpt
