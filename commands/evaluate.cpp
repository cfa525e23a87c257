#include "commands/evaluate.h"

#include "commands/run/training_run.h"

namespace train_gpt {

int run_evaluate(const Options& options) {
  return with_session(options, [&](Session& session) {
    TrainingRun run(session, options);
    return run.guarded([&] { run.evaluate(); });
  });
}

}  // namespace train_gpt
