// Measurements of a run's steps: the line of each step, and at the end the parts of a usual step's time.
#pragma once

#include "commands/run/log.h"
#include "commands/run/recorder.h"
#include "commands/run/stragglers.h"
#include "commands/run/training_run.h"
#include "pipeline/measure/clock.h"
#include "pipeline/measure/step_records.h"

namespace train_gpt {

// Share of `peak_flops` (per second, of all devices together) that training on `tokens` tokens in `ms` milliseconds
// takes.
double model_flops_utilisation(const ModelConfig& model, std::int64_t seq_len, std::int64_t tokens, double ms,
                               double peak_flops);

class StepMeter {
 public:
  explicit StepMeter(TrainingRun& run);  // allocates all that it will need; outlived by `run`

  // Before a step. The hosts' clocks begin at different moments, and drift: compares them every few seconds.
  // Collective.
  void align_clocks();
  // Before a step: hands records of steps to rank 0. Collective.
  void hand_on_records();
  // After a step.
  StepReport report(std::int64_t step, const StepResult& result);
  // At the end: the table, --svg, --trace, report.html. Collective.
  void show_results();

 private:
  static constexpr std::size_t kSteadyKept = 64;
  SteadySteps steady_steps() const;
  double measuring_share() const;

  TrainingRun& run_;
  StepRecords records_;
  Recorder recorder_;
  Stragglers stragglers_;
  struct Steady {
    StepBubble bubble;
    double norm_wait_ms = 0;  // of this rank
  };
  std::vector<Steady> steady_;  // of the last steps with a full pipe, a ring
  std::int64_t steady_count_ = 0;
  double keeping_ms_ = 0;  // spent on copying measurements into the records, in all steps together
  double steps_ms_ = 0;
  std::int64_t steps_taken_ = 0;
  bool one_host_ = true;        // all ranks of the job run on this host
  ClockOffset clock_;           // of this rank's host
  double last_end_ms_ = 0;      // of the last step's last action, on rank 0's clock
  double clock_needed_at_ = 0;  // ms on rank 0's clock; 0: at once
};

}  // namespace train_gpt
