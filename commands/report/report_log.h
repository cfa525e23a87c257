// What a log.jsonl tells about the steps of a run, as curves over the steps.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace train_gpt {

using StepSeries = std::vector<std::pair<double, double>>;  // step, value

struct LoggedRun {
  StepSeries loss, validation_loss;
  StepSeries bubble, bubble_predicted;  // fractions
  StepSeries ms, tokens_per_s;
};

// Lines that are not whole events (the last one of a run that was killed) are passed over, values that are null too.
// Throws std::runtime_error if the file cannot be read.
LoggedRun read_log(const std::string& path);

// Of the values; `series` is not empty.
double median(const StepSeries& series);

}  // namespace train_gpt
