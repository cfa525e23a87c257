#include "commands/train.h"

#include "commands/training_run.h"

namespace train_gpt {

int run_train(const Options& options) {
  return with_session(options, [&](Session& session) {
    TrainingRun run(session, options);
    return run.guarded([&] { run.train(); });
  });
}

}  // namespace train_gpt
