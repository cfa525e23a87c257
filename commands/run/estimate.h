// The lines that a run prints before its first step about how long it will take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace train_gpt {

struct EstimateRequest {
  ModelConfig model;
  std::int64_t seq_len = 0;
  std::int64_t steps = 0;     // still to be taken
  double step_ms = 0;         // predicted
  bool model_is_open = true;  // the model could be another: none was loaded or resumed
};

// "1000 steps of about 18 s: about 5 h". Beyond an hour a second line names a smaller model and its time at the same
// pace of operations.
std::vector<std::string> estimate_lines(const EstimateRequest& request);

}  // namespace train_gpt
