// The rows of `train_gpt whatif`: changes, the time of a step with them, and how to try them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "commands/run/record_header.h"
#include "pipeline/measure/records_file.h"
#include "pipeline/measure/what_if.h"

namespace train_gpt {

struct WhatIfRow {
  std::string what;
  double ms = 0;        // of a step's actions
  std::string command;  // to try it; empty: only the replay can
  // A run for the timed device, and the simulator's time for exactly that run.
  struct Replay {
    Schedule schedule;
    std::vector<int> partition;
    ActionDurations durations;
    StageCosts links;
    double predicted_ms = 0;
  };
  Replay replay;
};

// Reads at most `most` steps of the slowest pipeline of the job, without the first ones, in which things are set up, if
// there are others. Throws std::invalid_argument if the records are not of the header's run.
RecordedSteps recorded_steps(const Records& records, const RecordHeader& header, std::size_t most);

// Rows with the same lists: ranks, the last stage, links, jitter.
std::vector<WhatIfRow> rows_of_same_lists(const WhatIf& what_if, const RecordHeader& header);

// Rows with other lists: schedules, cut, micro-batches, ranks, and the memory limit if that is not 0. Rows that cannot
// be planned are left out, and `notes` says why.
std::vector<WhatIfRow> rows_of_other_plans(const WhatIf& what_if, const RecordHeader& header, std::int64_t memory_limit,
                                           std::vector<std::string>& notes);

}  // namespace train_gpt
