// Checks before the first step that there is room for what a run will write.
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
  std::int64_t own_checkpoints = 0;    // checkpoints that a resumed run already has there
  std::int64_t overwritten_bytes = 0;  // freed by the first checkpoint
};

// The folder has to exist. Throws std::runtime_error naming it.
DiskSpace disk_space(const std::string& folder, const RunOptions& run);

// Throws std::invalid_argument if not even one checkpoint and the models that remain fit, or if a file exceeds the
// system's limit. Returns a line if --keep checkpoints and the one being written do not fit.
std::vector<std::string> check_disk_space(const DiskSpace& space, const RunOptions& run, const ModelConfig& model,
                                          bool keeps_best);

}  // namespace train_gpt
