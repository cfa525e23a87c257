// One rank's part in a run, made from inputs and plan and ready to step.
#pragma once

#include <memory>

#include "commands/run/background_saving.h"
#include "commands/run/best_model.h"
#include "commands/run/inputs.h"
#include "commands/run/log.h"
#include "commands/run/run_plan.h"
#include "commands/run/stopping.h"
#include "pipeline/train/state_file.h"
#include "pipeline/train/watchdog.h"

namespace train_gpt {

struct TrainingRun {
  // Allocates all memory, opens the log, fills the parameters (--resume, --init, or random), and prints the prediction.
  // The referenced objects outlive the run. Collective; throws as Session::together. begun: monotonic_seconds() when
  // the program started.
  TrainingRun(Session& session, const Options& options, RunInputs& inputs, const RunPlan& decided, double begun);

  bool computes() const { return plan.request.computes; }
  bool trains() const { return options.command == Command::train; }
  bool flushless() const { return plan.request.flushless(); }
  bool optimistic() const { return options.optimizer.optimizer_step == OptimizerStep::optimistic; }

  Session& session;
  const Options& options;
  RunInputs& inputs;
  const RunPlan& decided;
  const Plan& plan;
  Groups groups;
  std::unique_ptr<RunLog> log;
  std::unique_ptr<StateFile> state;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<Watchdog> watchdog;
  std::optional<BestModel> best;  // of a run that trains and validates
  std::unique_ptr<StateCopy> copy;
  std::unique_ptr<BackgroundSaving> background;  // null: training waits for saves (run_saves.h)
  struct {
    bool is_checkpoint = false;
    double since = 0;  // monotonic_seconds()
    double still = 0;  // seconds that training waited for it
  } under_way;         // the save of `background`
  Stopping stopping;
  StageCosts planned;    // measured costs of the stages
  Simulation predicted;  // from these costs

 private:
  RunStart start_facts() const;
  void fill_parameters();
  void install_hooks();
  void predict();
};

// Takes the steps of the run, and leaves model, checkpoints and measurements. A failure of this rank ends the whole
// job: the rank that fails first says why, the others say where they were. Returns the exit status: kStopped if the run
// ended before its last step, with a checkpoint.
int train(TrainingRun& run);
// Mean loss over --val-batches batches of the validation data, logged. Fails as train.
int evaluate(TrainingRun& run);

}  // namespace train_gpt
