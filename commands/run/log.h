// The output of a run: flushed lines on rank 0's standard output, one JSON object per event in DIR/log.jsonl, and
// DIR/report.html, which is redrawn from them while the run lives.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands/run/log_events.h"
#include "commands/run/multiple_choice.h"
#include "pipeline/draw/timeline.h"

namespace train_gpt {

struct LoggedRun;

// Which output reaches the screen; the log always has everything.
struct Screen {
  std::int64_t log_every = 1;  // a line for each such step, and for the first and the last
  bool quiet = false;          // only notes, and the files left at the end
};

// The source of time; tests replace it.
struct LogClock {
  std::function<double()> seconds;    // never goes back
  std::function<std::string()> date;  // ISO 8601, in UTC
};
LogClock system_clock();

class RunLog {
 public:
  // Only rank 0 writes. append: a resumed run continues its log. Throws std::runtime_error naming the file.
  RunLog(const std::string& directory, bool writes, bool append, const Screen& screen = {},
         LogClock clock = system_clock());
  ~RunLog();

  // To people only. Control characters are escaped, since names and generated text may hold any.
  void text(const std::string& line);
  // Shown even with --quiet: notes, results.
  void essential(const std::string& line);

  void start(const RunStart& start, const Options& options);
  // `uniform_makespan`: of the same schedule cut uniformly, if that was compared.
  void plan(const Plan& plan, const Simulation& predicted, std::optional<double> uniform_makespan);
  void resumed(std::int64_t step, const std::string& checkpoint);
  // To be called when the first step is about to begin: time counts from here.
  void begin_steps();
  void step(const StepReport& report);
  // bits_per_byte: empty if the tokenizer is not known.
  void validation(std::int64_t step, double loss, std::optional<double> bits_per_byte);
  void multiple_choice(std::int64_t step, const MultipleChoiceResult& result);
  // One event per question, to the log alone.
  void answers(const MultipleChoiceResult& result);
  // The time of one of the last `steps_kept` steps in its parts. To the log alone.
  void measurement(const Schedule& schedule, const StepAnalysis& analysis, std::size_t steps_kept,
                   double measuring_share);
  // To people and log.
  void steady(const SteadySteps& steady, const Simulation& predicted);
  // Pictures of that step, unless they have more than kMostBarsOnPage bars. To log and report.
  void timeline(std::int64_t step, const std::vector<Timeline>& panels);
  // Empty hash: nothing was computed; otherwise `arithmetic` says how (kernels/arithmetic.h). redone_steps: how many
  // optimistic steps were done again; empty if steps are synchronous.
  void end(const std::string& parameter_hash, double final_loss, const std::string& arithmetic,
           std::optional<std::int64_t> redone_steps = {});
  // The run ends before its last step, by a stop request: "SIGUSR1".
  void stopped(std::int64_t steps_taken, const std::string& reason);
  // The run ends by an error. Never throws, so as not to hide that error.
  void failed(const std::string& message) noexcept;
  // After the folder was removed: writes the log there anew.
  void put_back();
  const std::string& path() const { return path_; }

 private:
  void event(const Event& event);
  void write_report(bool running);
  void refresh_report();

  bool writes_;
  Screen screen_;
  LogClock clock_;
  std::ofstream file_;
  int kept_ = -1;  // reads the log, even after its name was removed
  std::string path_, report_path_;
  std::unique_ptr<LoggedRun> so_far_;  // everything in the log; for runs with a report
  std::optional<ProgressMeter> meter_;
  std::int64_t first_step_ = 0;
  double report_due_ = 0;  // seconds
};

}  // namespace train_gpt
