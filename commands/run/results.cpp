#include "commands/run/results.h"

#include <fstream>
#include <functional>
#include <stdexcept>

#include "commands/cli/wording.h"
#include "pipeline/measure/trace.h"

namespace train_gpt {
namespace {

constexpr int kMostTableRows = 32;
constexpr const char* kTableWords =
    "idle = the schedule's own + imbalance of the stages + jitter of single actions + communication not hidden by "
    "work\n"
    "R: reduction of gradients, U: clipping and AdamW, both after the flush (the end of the last action)";

void write_file(const std::string& name, const std::string& path, const std::function<void(std::ostream&)>& write) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (file) write(file);
  file.close();
  if (!file) throw std::runtime_error(name + path + " cannot be written");
}

std::size_t actions_in(const Schedule& schedule) {
  std::size_t count = 0;
  for (const std::vector<Action>& list : schedule.lists) count += list.size();
  return count;
}

}  // namespace

void check_result_files(const RunOptions& run) {
  const auto check = [](const char* option, const std::string& path) {
    if (path.empty()) return;
    if (!std::ofstream(path, std::ios::app)) {
      throw std::invalid_argument(std::string(option) + " " + path +
                                  " cannot be written: name a file in a folder that exists");
    }
  };
  check("--trace", run.trace);
  check("--svg", run.svg);
}

namespace {

// For a schedule without a flush: ranks run one step at different times, so that it cannot be shown alone.
void name_windows(const Plan& plan, Timeline& actual, Timeline& expected) {
  const int m = plan.request.batch.micro_batches;
  for (Timeline* one : {&actual, &expected}) {
    one->title = plan.request.schedule.name + ": p = " + std::to_string(plan.request.schedule.ranks) +
                 ", m = " + std::to_string(m) + ", one step of each rank";
    one->note = "micro-batches from " + std::to_string(m) + " on are of the next step";
  }
}

}  // namespace

void show_results(RunLog& log, const RunOptions& run, const Plan& plan, const RunResults& results) {
  const Schedule& schedule = plan.step_schedule();
  const MeasuredStep& step = median_step(results.steps);
  Timeline actual = measured_timeline(schedule, step, results.predicted);
  Timeline expected = timeline(schedule, results.predicted);
  std::string table;
  if (plan.request.flushless()) {
    name_windows(plan, actual, expected);
  } else {
    const StepAnalysis analysis = analyse(schedule, step, results.predicted);
    table = analysis_summary(analysis) + "\n" + analysis_table(analysis, kMostTableRows) + kTableWords;
    log.measurement(schedule, analysis, results.steps.size(), results.measuring_share);
  }
  if (run.final_timeline) {
    const std::string which = results.steps.size() == 1 ? ""
                                                        : ", of the last " + counted(results.steps.size(), "step") +
                                                              " the one of median length";
    log.text("step " + std::to_string(step.step) + which + ":\n" + draw_text(actual) + table);
  }
  expected.title = "predicted: " + expected.title;
  actual.title = "measured, step " + std::to_string(step.step) + ": " + actual.title;
  log.timeline(step.step, {actual, expected});
  const bool drawable = 3 * actions_in(schedule) < kMostSvgBars;
  if (!run.svg.empty() && drawable) {
    write_file("--svg ", run.svg, [&](std::ostream& file) { file << draw_svg({actual, expected}); });
    log.text("timeline drawn to " + run.svg);
  } else if (!run.svg.empty()) {
    log.essential("note: --svg " + run.svg + " stays empty: the step has too many actions for a picture; see --trace");
  }
  if (!run.trace.empty()) {
    write_file("--trace ", run.trace, [&](std::ostream& file) { write_trace(file, schedule, results.steps); });
    log.text("trace of " + counted(results.steps.size(), "step") + " written to " + run.trace +
             " (open it in ui.perfetto.dev or chrome://tracing)");
  }
  log.text("report of the run: " + run.output + "/report.html");
}

}  // namespace train_gpt
