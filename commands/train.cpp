#include "commands/train.h"

#include "commands/run/run_folder.h"
#include "commands/run/training_run.h"
#include "pipeline/train/watchdog.h"

namespace train_gpt {

int run_train(const Options& options) {
  listen_for_wish_to_stop();
  return with_session(options, [&](Session& session) {
    listen_for_wish_to_stop();  // again: MPI_Init puts a handler of its own there
    RunFolder folder(session, options);
    Options placed = options;
    placed.run.output = folder.path();
    TrainingRun run(session, placed, &folder);
    return run.guarded([&] { run.train(); });
  });
}

}  // namespace train_gpt
