// report.html: a run on one page that needs neither network nor scripts.
#pragma once

#include <string>
#include <vector>

#include "pipeline/measure/step_analysis.h"
#include "pipeline/plan/execution_plan.h"

namespace train_gpt {

struct ReportInput {
  std::string log_path;                    // log.jsonl of the run: losses, bubbles and times of all steps
  std::vector<std::string> facts;          // lines for people, at the top
  const Plan* plan = nullptr;              // not owned
  const StepAnalysis* analysis = nullptr;  // of the step shown
  std::string timeline_svg;                // measured above predicted; empty: too large to draw
  std::string table;                       // analysis_table()
};

std::string html_report(const ReportInput& input);

}  // namespace train_gpt
