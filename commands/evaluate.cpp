#include <optional>

#include "commands/commands.h"
#include "commands/run/setup.h"
#include "commands/run/training_run.h"
#include "pipeline/train/signals.h"

namespace train_gpt {

int run_evaluate(const Options& options) {
  const double begun = monotonic_seconds();
  Session session(options);
  try {
    listen_for_end();
    // The ranks watch each other through files, even if the command leaves none.
    std::optional<RunFolder> folder;
    std::optional<ScratchFolder> scratch;
    Options placed = options;
    if (options.run.output.empty()) {
      placed.run.output = scratch.emplace(session).path();
    } else {
      placed.run.output = folder.emplace(session, options).path();
    }
    placed.model.init_file = agreed_init_file(session, options);
    RunInputs inputs = open_inputs(session, placed, folder ? &*folder : nullptr);
    const RunPlan plan = plan_run(session, placed, inputs);
    TrainingRun run(session, placed, inputs, plan, begun);
    return evaluate(run);
  } catch (const std::exception& error) {
    session.end_job(error);
  }
}

}  // namespace train_gpt
