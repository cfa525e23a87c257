#include "commands/run/disk_space.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "commands/cli/wording.h"
#include "commands/run/checkpoints.h"
#include "model/checkpoint.h"
#include "pipeline/plan/plan_bytes.h"

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

// Logs, manifests, state files of ranks, unfilled blocks.
constexpr std::int64_t kSmallFiles = std::int64_t{1} << 20;

std::int64_t bytes_in(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(folder, none)) {
    if (entry.is_regular_file(none)) bytes += static_cast<std::int64_t>(entry.file_size(none));
  }
  return bytes;
}

// The most checkpoints of one run that exist at once.
std::int64_t checkpoints_at_once(const RunOptions& run) {
  const std::int64_t every = run.checkpoint_every;
  const std::int64_t written = every > 0                    ? (run.steps + every - 1) / every
                               : run.checkpoint_seconds > 0 ? run.keep + 1
                                                            : 1;
  return std::min<std::int64_t>(written, run.keep + 1);
}

}  // namespace

DiskSpace disk_space(const std::string& folder, const RunOptions& run) {
  struct statvfs system = {};
  if (statvfs(folder.c_str(), &system) != 0) {
    throw std::runtime_error(folder + ": its file system cannot be asked for free space: " + std::strerror(errno));
  }
  DiskSpace space;
  space.free = static_cast<std::int64_t>(system.f_bavail) * static_cast<std::int64_t>(system.f_frsize);
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    space.largest_file = std::max<std::int64_t>(1, static_cast<std::int64_t>(limit.rlim_cur));
  }
  space.own_checkpoints = run.overwrite ? 0 : static_cast<std::int64_t>(own_checkpoints(folder).size());
  if (run.overwrite) space.overwritten_bytes = bytes_in(folder);
  return space;
}

std::vector<std::string> check_disk_space(const DiskSpace& space, const RunOptions& run, const ModelConfig& model,
                                          bool keeps_best) {
  const std::int64_t model_bytes = model_file_bytes(model, Precision::fp32);
  const std::int64_t optimizer = optimizer_file_bytes(model);
  const std::int64_t checkpoint = model_bytes + optimizer;
  const std::int64_t largest = std::max(model_bytes, optimizer);
  if (space.largest_file > 0 && largest > space.largest_file) {
    throw std::invalid_argument("the system's limit of file sizes (ulimit -f) is " + format_bytes(space.largest_file) +
                                ", but a checkpoint has a file of " + format_bytes(largest) +
                                ": raise it (ulimit -f unlimited)");
  }
  // The final model.bin, and best/ twice while it is replaced.
  const std::int64_t models = model_bytes * (keeps_best ? 3 : 1);
  const std::int64_t least = checkpoint + models + kSmallFiles;
  if (space.free < least) {
    throw std::invalid_argument("--output " + run.output + ": there are " + format_bytes(space.free) +
                                " free, but one checkpoint (" + format_bytes(checkpoint) +
                                ") and the models that stay (" + format_bytes(models) + ") take " +
                                format_bytes(least) + ": make room, or name a folder on another disk");
  }
  const std::int64_t more = std::max<std::int64_t>(1, checkpoints_at_once(run) - space.own_checkpoints);
  const std::int64_t all = more * checkpoint + models + kSmallFiles - space.overwritten_bytes;
  if (all <= space.free) return {};
  return {"--keep " + std::to_string(run.keep) + " checkpoints of " + format_bytes(checkpoint) +
          " each, and one more while it is written, take " + format_bytes(all) + " with the models that stay, and " +
          run.output + " has " + format_bytes(space.free) +
          " free: the run ends when they are used up; lower --keep, or make room"};
}

}  // namespace train_gpt
