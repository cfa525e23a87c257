#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "commands/commands.h"
#include "commands/run/run_lock.h"
#include "commands/run/stopping.h"

namespace train_gpt {

int run_checkpoint(const Options& options) {
  const std::string folder = options.run.output.empty() ? kLatestRun : options.run.output;
  if (!RunLock::is_held(folder)) {
    throw std::invalid_argument(folder + ": no run is alive in this folder; give the --output of a training run");
  }
  const std::string path = request_file(folder);
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor < 0 && errno != EEXIST) throw std::runtime_error(path + ": cannot be made: " + std::strerror(errno));
  if (descriptor >= 0) close(descriptor);
  std::printf("asked the run in %s for a checkpoint; it writes it at the end of the step that it is in\n",
              folder.c_str());
  return 0;
}

}  // namespace train_gpt
