// What a log.jsonl tells of a run: curves over its steps, and the last event of each other kind. docs/log.md has the
// fields.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace train_gpt {

using StepSeries = std::vector<std::pair<double, double>>;  // step, value

struct LoggedRun {
  StepSeries loss, validation_loss;
  StepSeries learning_rate, grad_norm;
  StepSeries bubble, bubble_predicted;  // fractions
  StepSeries ms, tokens_per_s;
  std::vector<double> resumes;  // steps at which the run went on after a pause

  // Null where there was no such event. A later one takes the place of an earlier one.
  nlohmann::ordered_json first_start, start, plan, measurement, timeline;
  nlohmann::ordered_json step;  // the last one
  nlohmann::ordered_json
      end;  // of kind end, stop or failure; null while the run goes on, or if nothing could be written any more

  // The next event of the log; what is no event, or has no such fields, is passed over.
  void add(const nlohmann::ordered_json& event);
};

// Lines that are not whole events (the last one of a run that was killed) are passed over, values that are null too.
// Throws std::runtime_error if the file cannot be read.
LoggedRun read_log(const std::string& path);

// Of the values; `series` is not empty.
double median(const StepSeries& series);

}  // namespace train_gpt
