// The content of a log.jsonl: curves over the run's steps, and the last event of each other kind. docs/log.md has the
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

  // Null if there was no such event. A later event replaces an earlier one.
  nlohmann::ordered_json first_start, start, plan, measurement, timeline;
  nlohmann::ordered_json step;  // the last one
  nlohmann::ordered_json
      end;  // of kind end, stop or failure; null while the run lives, or if it could not write any more

  // Adds the next event of the log; other values, and events without the fields, are ignored.
  void add(const nlohmann::ordered_json& event);
};

// Ignores lines that are not whole events (such as the last one of a killed run) and null values. Throws
// std::runtime_error if the file cannot be read.
LoggedRun read_log(const std::string& path);

// The median of the values; `series` is not empty.
double median(const StepSeries& series);

}  // namespace train_gpt
