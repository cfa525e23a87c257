#include "commands/train.h"

#include "commands/run/training_run.h"
#include "pipeline/train/watchdog.h"

namespace train_gpt {

int run_train(const Options& options) {
  listen_for_wish_to_stop();
  return with_session(options, [&](Session& session) {
    listen_for_wish_to_stop();  // again: MPI_Init puts a handler of its own there
    TrainingRun run(session, options);
    return run.guarded([&] { run.train(); });
  });
}

}  // namespace train_gpt
