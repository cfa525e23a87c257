// What to say before the first step about how long a run will take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace train_gpt {

struct EstimateRequest {
  ModelConfig model;
  std::int64_t seq_len = 0;
  std::int64_t steps = 0;     // that are left
  double step_ms = 0;         // predicted
  bool model_is_open = true;  // another model could be taken: none was loaded or resumed
};

// "1000 steps of about 18 s: about 5 h". Beyond an hour a line more, with a smaller model and the time that its
// operations would take at the same pace.
std::vector<std::string> estimate_lines(const EstimateRequest& request);

}  // namespace train_gpt
