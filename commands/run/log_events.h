// The events of log.jsonl: one JSON object each, with the fields that docs/log.md describes. Text that is not UTF-8 is
// replaced.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "commands/cli/options.h"
#include "commands/run/multiple_choice.h"
#include "commands/run/progress.h"
#include "commands/run/spikes.h"
#include "pipeline/measure/step_analysis.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

// Rises whenever a field changes its meaning or goes away; new fields and events do not raise it.
inline constexpr int kLogVersion = 2;

using Event = nlohmann::ordered_json;

// A description of the run for people.
struct RunStart {
  std::string device;  // resources of the ranks
  std::string model;   // model_line()
  std::int64_t first_step = 0;
  std::int64_t tokens_per_step = 0;
  std::int64_t training_tokens = 0;  // of one pass over the data; 0: none
  std::int64_t validation_tokens = 0;
};

struct StepReport {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  std::int64_t tokens = 0;  // of one step
  StepResult result;
  StepBubble bubble;
  double bubble_predicted = 0;
  std::optional<double> mfu;  // model FLOPs utilisation, a fraction; empty if the peak is not known
  SpikeDetector::Scores scores;
  std::optional<bool> redone;  // optimistic steps: rolled back and done again

  double tokens_per_s() const { return static_cast<double>(tokens) / result.ms * 1000; }
};

// Steps of a run without a flush that began and ended with a full pipe.
struct SteadySteps {
  std::int64_t steps = 0;
  double period_ms = 0;
  double bubble = 0;
  double norm_wait_ms = 0;  // of rank 0, which is the first to need it
};

// date: the present one, in ISO 8601.
Event start_event(const RunStart& start, const Options& options, const std::string& date);
// Sizes, choices, predictions and the memory of every rank. `uniform_makespan`: of the same schedule with a uniform
// cut, if that was compared.
Event plan_event(const Plan& plan, const Simulation& predicted, std::optional<double> uniform_makespan);
Event step_event(const StepReport& report, const Progress& progress);
Event steady_event(const SteadySteps& steady, const Simulation& predicted);
// bits_per_byte: empty if the tokenizer is not known.
Event validation_event(std::int64_t step, double loss, std::optional<double> bits_per_byte);
Event multiple_choice_event(std::int64_t step, const MultipleChoiceResult& result);
Event answer_event(std::size_t question, const MultipleChoiceResult::Answer& answer);
Event measurement_event(const Schedule& schedule, const StepAnalysis& analysis, std::size_t steps_kept,
                        double measuring_share);

// One line, without its end.
std::string line_of(const Event& event);

}  // namespace train_gpt
