#include "commands/commands.h"
#include "commands/run/setup.h"
#include "commands/run/training_run.h"
#include "pipeline/train/signals.h"

namespace train_gpt {

int run_train(const Options& options) {
  const double begun = monotonic_seconds();
  Session session(options);
  try {
    listen_for_wish_to_stop();  // again: MPI_Init puts a handler of its own there
    RunFolder folder(session, options);
    Options placed = options;
    placed.run.output = folder.path();
    placed.model.init_file = agreed_init_file(session, options);
    RunInputs inputs = open_inputs(session, placed, &folder);
    const RunPlan plan = plan_run(session, placed, inputs);
    look_for_disk_space(session, placed, inputs);
    TrainingRun run(session, placed, inputs, plan, begun);
    return train(run);
  } catch (const std::exception& error) {
    session.end_job(error);
  }
}

}  // namespace train_gpt
