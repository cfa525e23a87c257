#include "commands/evaluate.h"

#include <optional>

#include "commands/run/run_folder.h"
#include "commands/run/training_run.h"

namespace train_gpt {

int run_evaluate(const Options& options) {
  return with_session(options, [&](Session& session) {
    // The ranks watch each other by files, also where nothing is to stay.
    std::optional<RunFolder> folder;
    std::optional<ScratchFolder> scratch;
    Options placed = options;
    if (options.run.output.empty()) {
      placed.run.output = scratch.emplace(session).path();
    } else {
      placed.run.output = folder.emplace(session, options).path();
    }
    TrainingRun run(session, placed, folder ? &*folder : nullptr);
    return run.guarded([&] { run.evaluate(); });
  });
}

}  // namespace train_gpt
