// The results that a run reports at its end: the parts of the time of a usual step, beside the prediction, on the
// screen, in the log (and so in report.html) and in the files that --trace and --svg name.
#pragma once

#include <string>
#include <vector>

#include "commands/cli/options.h"
#include "commands/run/log.h"
#include "pipeline/measure/measured_timeline.h"
#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

// How many steps every rank keeps for this.
inline constexpr std::size_t kStepsKept = 8;

struct RunResults {
  std::vector<MeasuredStep> steps;  // the last ones; not empty
  Simulation predicted;
  double measuring_share = 0;  // the share of all steps' time that marks and records take on rank 0
};

// Throws std::invalid_argument naming option and file unless the files that --trace and --svg name can be written; they
// are created. For rank 0.
void check_result_files(const RunOptions& run);

// On rank 0.
void show_results(RunLog& log, const RunOptions& run, const Plan& plan, const RunResults& results);

}  // namespace train_gpt
