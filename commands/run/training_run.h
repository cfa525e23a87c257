// A training run from options to log: the plan, the trainer, the data, and what is told about them.
#pragma once

#include <memory>
#include <optional>

#include "commands/run/checkpoints.h"
#include "commands/run/log.h"
#include "commands/run/run_folder.h"
#include "commands/run/session.h"
#include "commands/run/setup.h"
#include "data/sample_order.h"
#include "data/token_dataset.h"
#include "pipeline/measure/clock.h"
#include "pipeline/measure/step_records.h"
#include "pipeline/train/state_file.h"
#include "pipeline/train/watchdog.h"

namespace train_gpt {

class TrainingRun {
 public:
  // Checks all input on all ranks, plans, allocates, initialises. Collective.
  // `options.run.output` is a folder that is there; `folder`, where the run owns it, else null.
  TrainingRun(Session& session, const Options& options, RunFolder* folder);

  void train();
  // Runs `body` after set-up. A failure of this rank is told to the others and ends the whole job: whoever fails first
  // says why, the others say where they were. Returns the exit status.
  int guarded(const std::function<void()>& body);
  void evaluate();

 private:
  void end_early(std::int64_t steps_taken);
  bool trains() const { return options_.command == Command::train; }
  // Mean loss over --val-batches batches of the validation data.
  double validate();
  void open_inputs();
  // --resume: finds the checkpoint, and refuses what contradicts it.
  void choose_checkpoint();
  void check_timed() const;
  CostModel find_costs();
  void make_plan_and_trainer();
  // Parameters from --resume, --init, or random.
  void fill_parameters();
  void predict();
  void install_hooks();
  // straight_on: the next step follows immediately, so that an optimistic one may begin it.
  void step(std::int64_t step, bool straight_on);
  bool due(std::int64_t every, std::int64_t step) const { return every > 0 && step % every == 0; }
  bool optimistic() const { return options_.optimizer.optimizer_step == OptimizerStep::optimistic; }
  void align_clocks();
  void write_checkpoint(std::int64_t steps_taken);
  void show_sample(std::int64_t step);
  void show_results();
  double measuring_share() const;
  Batch training_batch(std::int64_t step) const;

  Session& session_;
  const Options& options_;
  RunFolder* folder_;
  Layout layout_;
  ModelConfig model_;
  std::optional<Schedule> named_;  // none: --schedule auto
  CostModel costs_;
  Choice choice_;
  Schedule schedule_;
  std::vector<std::string> notices_;
  std::optional<TokenDataset> train_data_;
  std::optional<TokenDataset> val_data_;
  Plan plan_;
  Groups groups_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<StateFile> state_;
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<RunLog> log_;
  StageCosts stage_costs_;
  std::unique_ptr<StepRecords> records_;
  Simulation predicted_;
  CheckpointManifest manifest_;  // of this run, for its checkpoints
  FoundCheckpoint resumed_;      // where it goes on; without a folder: nowhere
  double keeping_ms_ = 0;        // copying what was measured into the records, all steps together
  double steps_ms_ = 0;
  std::int64_t steps_taken_ = 0;
  bool one_host_ = true;        // all ranks of the job run on this host
  ClockOffset clock_;           // of this rank's host
  double last_end_ms_ = 0;      // of the last step's last action, on rank 0's clock
  double clock_needed_at_ = 0;  // ms on rank 0's clock; 0: at once
  double last_loss_ = 0;
  bool stop_asked_ = false;        // some rank got SIGUSR1
  std::int64_t redone_steps_ = 0;  // of optimistic steps
};

}  // namespace train_gpt
