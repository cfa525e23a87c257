#include "commands/run/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands/cli/wording.h"
#include "commands/report/report.h"
#include "pipeline/draw/markup.h"
#include "pipeline/train/state_file.h"

namespace train_gpt {
namespace {

constexpr double kReportEveryS = 10;
constexpr double kReportShare = 0.005;  // the most of the run's time for drawing it

template <typename... Arguments>
std::string format(const char* pattern, Arguments... arguments) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), pattern, arguments...);
  return text.data();
}

// A run that was killed may have left half a line, which would spoil the next event.
void drop_unfinished_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t end = text.rfind('\n');
  const std::size_t whole = end == std::string::npos ? 0 : end + 1;
  if (whole < text.size()) std::filesystem::resize_file(path, whole);
}

// "step 120/350  loss 2.345678  norm   0.8123  lr 1.900e-03    123.4 ms    8300 tok/s (mean 8123)  bubble 12.3%
// (predicted 11.1%)  epoch 0.42  1:10, 2:05 left"
std::string step_line(const StepReport& report, const Progress& progress) {
  const StepResult& result = report.result;
  const std::string steps = std::to_string(report.steps);
  std::string line =
      format("step %*lld/%s  ", static_cast<int>(steps.size()), static_cast<long long>(report.step), steps.c_str());
  if (std::isfinite(result.loss)) {
    line += format("loss %.6f  norm %8.4f  lr %.3e  ", result.loss, result.grad_norm, result.learning_rate);
  }
  line += format("%7.1f ms  %6.0f tok/s (mean %.0f)", result.ms, report.tokens_per_s(), progress.tokens_per_s_mean);
  if (report.mfu) line += format("  MFU %.1f%%", 100 * *report.mfu);
  line += format("  bubble %.1f%% (predicted %.1f%%)", 100 * report.bubble.bubble, 100 * report.bubble_predicted);
  if (progress.epoch) line += format("  epoch %.2f", *progress.epoch);
  line += "  " + clock_text(progress.elapsed_s);
  if (report.step + 1 < report.steps) line += ", " + clock_text(progress.left_s) + " left";
  if (result.skipped) line += "  skipped: loss or norm is not finite";
  if (report.scores.spike) {
    line += format("  SPIKE: loss %+.1f, norm %+.1f standard deviations", report.scores.loss.value_or(0),
                   report.scores.norm.value_or(0));
  }
  return line;
}

}  // namespace

LogClock system_clock() {
  return {.seconds = monotonic_seconds, .date = [] {
            const std::time_t now = std::time(nullptr);
            std::tm parts{};
            gmtime_r(&now, &parts);
            std::array<char, 32> text{};
            std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
            return std::string(text.data());
          }};
}

RunLog::RunLog(const std::string& directory, bool writes, bool append, const Screen& screen, LogClock clock)
    : writes_(writes),
      screen_(screen),
      clock_(std::move(clock)),
      path_(directory + "/log.jsonl"),
      report_path_(directory + "/report.html") {
  if (!writes_) return;
  if (append) drop_unfinished_line(path_);
  so_far_ = std::make_unique<LoggedRun>();
  if (append && std::filesystem::exists(path_)) *so_far_ = read_log(path_);
  file_.open(path_, append ? std::ios::app : std::ios::trunc);
  if (!file_) throw std::runtime_error(path_ + " cannot be written (--output names its directory)");
  kept_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
}

RunLog::~RunLog() {
  if (kept_ >= 0) close(kept_);
}

void RunLog::put_back() {
  namespace fs = std::filesystem;
  if (!writes_ || fs::exists(path_)) return;
  fs::create_directories(fs::path(path_).parent_path());
  fs::copy_file("/proc/self/fd/" + std::to_string(kept_), path_);
  file_.close();
  file_.open(path_, std::ios::app);
}

void RunLog::text(const std::string& line) {
  if (!screen_.quiet) essential(line);
}

void RunLog::essential(const std::string& line) {
  if (!writes_) return;
  std::printf("%s\n", printable(line).c_str());
  std::fflush(stdout);
}

void RunLog::event(const Event& event) {
  if (!writes_) return;
  const std::string line = line_of(event);
  errno = 0;
  file_ << line << '\n' << std::flush;
  if (!file_) throw std::runtime_error(path_ + ": writing failed: " + std::strerror(errno));
  so_far_->add(Event::parse(line));
}

void RunLog::start(const RunStart& start, const Options& options) {
  first_step_ = start.first_step;
  meter_.emplace(start.first_step, options.run.steps, start.tokens_per_step, start.training_tokens);
  event(start_event(start, options, clock_.date()));
}

void RunLog::plan(const Plan& plan, const Simulation& predicted, std::optional<double> uniform_makespan) {
  event(plan_event(plan, predicted, uniform_makespan));
}

void RunLog::resumed(std::int64_t step, const std::string& checkpoint) {
  event({{"event", "resume"}, {"step", step}, {"checkpoint", checkpoint}});
  text("resumed at step " + std::to_string(step) + " from " + checkpoint);
}

void RunLog::begin_steps() {
  if (!writes_) return;
  meter_->begin(clock_.seconds());
  refresh_report();
}

void RunLog::step(const StepReport& report) {
  if (!writes_) return;
  const Progress progress = meter_->after(report.step, clock_.seconds());
  event(step_event(report, progress));
  const bool last = report.step + 1 == report.steps;
  if (report.step % screen_.log_every == 0 || report.step == first_step_ || last) text(step_line(report, progress));
  refresh_report();
}

void RunLog::validation(std::int64_t step, double loss, std::optional<double> bits_per_byte) {
  event(validation_event(step, loss, bits_per_byte));
  std::string line =
      format("validation after %s: loss %.6f, perplexity %.4g", counted(step, "update").c_str(), loss, std::exp(loss));
  if (bits_per_byte) line += format(", %.4f bits per byte", *bits_per_byte);
  text(line);
}

void RunLog::multiple_choice(std::int64_t step, const MultipleChoiceResult& result) {
  event(multiple_choice_event(step, result));
  text(to_text(result));
}

void RunLog::answers(const MultipleChoiceResult& result) {
  for (std::size_t i = 0; i < result.answers.size(); ++i) event(answer_event(i, result.answers[i]));
}

void RunLog::steady(const SteadySteps& steady, const Simulation& predicted) {
  event(steady_event(steady, predicted));
  char line[200];
  std::snprintf(line, sizeof line,
                " with a full pipe, median %.4g ms (predicted %.4g), bubble %.2f%% (predicted %.2f%%), waiting for the "
                "norm %.3f ms on rank 0",
                steady.period_ms, predicted.makespan, 100 * steady.bubble, 100 * predicted.bubble, steady.norm_wait_ms);
  essential(counted(steady.steps, "step") + line);
}

void RunLog::measurement(const Schedule& schedule, const StepAnalysis& analysis, std::size_t steps_kept,
                         double measuring_share) {
  event(measurement_event(schedule, analysis, steps_kept, measuring_share));
}

void RunLog::timeline(std::int64_t step, const std::vector<Timeline>& panels) {
  std::size_t bars = 0;
  for (const Timeline& panel : panels) {
    for (const std::vector<TimelineBar>& row : panel.rows) bars += row.size();
  }
  if (bars <= kMostBarsOnPage) event(timeline_event(step, panels));
}

void RunLog::end(const std::string& parameter_hash, double final_loss, const std::string& arithmetic,
                 std::optional<std::int64_t> redone_steps) {
  Event json = {{"event", "end"}, {"parameter_hash", parameter_hash}, {"final_loss", final_loss}};
  if (parameter_hash.empty()) {
    json["parameter_hash"] = nullptr;
  } else {
    json["arithmetic"] = arithmetic;
  }
  if (redone_steps) {
    json["redone_steps"] = *redone_steps;
    text(counted(*redone_steps, "optimistic step") + (*redone_steps == 1 ? " was" : " were") +
         " taken back and done again");
  }
  event(json);
  write_report(/*running=*/false);
  if (parameter_hash.empty()) return;
  const std::string loss =
      std::isnan(final_loss) ? "" : format("  final loss %.6f", final_loss);  // answers alone: none
  essential("parameter_hash " + parameter_hash + loss);
}

void RunLog::stopped(std::int64_t steps_taken, const std::string& reason) {
  event({{"event", "stop"}, {"step", steps_taken}, {"reason", reason}});
  write_report(/*running=*/false);
}

void RunLog::failed(const std::string& message) noexcept {
  try {
    event({{"event", "failure"}, {"message", message}});
    write_report(/*running=*/false);
  } catch (const std::exception&) {
    return;
  }
}

// Only a run that has begun to take steps has a report.
void RunLog::write_report(bool running) {
  if (!writes_ || so_far_->start.is_null()) return;
  try {
    replace_file(report_path_, html_report(*so_far_, running ? RunCondition::running : RunCondition::over));
  } catch (const std::runtime_error& error) {  // the run itself goes on
    essential(std::string("note: ") + error.what());
  }
}

void RunLog::refresh_report() {
  const double begin = clock_.seconds();
  if (!writes_ || begin < report_due_) return;
  write_report(/*running=*/true);
  const double end = clock_.seconds();
  report_due_ = end + std::max(kReportEveryS, (end - begin) / kReportShare);
}

}  // namespace train_gpt
