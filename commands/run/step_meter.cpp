#include "commands/run/step_meter.h"

#include <algorithm>
#include <cstdio>

#include "commands/run/results.h"
#include "model/flops.h"

namespace train_gpt {

double model_flops_utilisation(const ModelConfig& model, std::int64_t seq_len, std::int64_t tokens, double ms,
                               double peak_flops) {
  const auto flops = static_cast<double>(tokens * flops_per_token(model, seq_len));
  return flops / (ms / 1000) / peak_flops;
}

StepMeter::StepMeter(TrainingRun& run)
    : run_(run),
      records_(run.plan.ranks[static_cast<std::size_t>(run.groups.rank())].actions.size(),
               run.trainer->lowered().size(), kStepsKept),
      recorder_(run),
      stragglers_(run.plan.request.schedule, run.planned, run.session.world().size()),
      steady_(run.flushless() ? kSteadyKept : 0),
      one_host_(run.session.host().ranks == run.session.world().size()) {}

// All ranks decide when from what they know alike.
void StepMeter::align_clocks() {
  if (run_.trainer->flowing()) return;  // it would empty the pipe
  constexpr double kEveryMs = 5000;
  if (one_host_ || last_end_ms_ < clock_needed_at_) return;
  clock_ = measure_clock_offset(run_.session.world(), [] { return 1000 * monotonic_seconds(); });
  run_.trainer->set_clock_ahead(clock_.ms);
  clock_needed_at_ = last_end_ms_ + kEveryMs;
}

void StepMeter::hand_on_records() {
  if (run_.trainer->flowing()) return;
  const double begin = monotonic_seconds();
  recorder_.hand_on_if_much();
  keeping_ms_ += (monotonic_seconds() - begin) * 1000;
}

StepReport StepMeter::report(std::int64_t step, const StepResult& result) {
  const double begin = monotonic_seconds();
  records_.keep(step, run_.session.device(), *run_.trainer);
  recorder_.keep(step, result.ms);
  keeping_ms_ += (monotonic_seconds() - begin) * 1000;
  steps_ms_ += result.ms;
  ++steps_taken_;
  for (const RankTimes& times : result.times) last_end_ms_ = std::max(last_end_ms_, times.last_end);

  if (run_.session.is_first()) {
    const std::string line = stragglers_.add(result.times);
    if (!line.empty()) run_.log->essential("note: " + line);
  }

  const BatchShape& batch = run_.plan.request.batch;
  StepReport report;
  report.step = step;
  report.steps = run_.options.run.steps;
  report.tokens = batch.step_tokens();
  report.result = result;
  if (run_.optimistic()) report.redone = result.redone;
  const auto pipeline = result.times.first(static_cast<std::size_t>(run_.inputs.layout.pipeline));
  report.bubble = run_.flushless() ? window_bubble(pipeline) : step_bubble(pipeline);
  if (result.steady) {
    steady_[static_cast<std::size_t>(steady_count_++) % kSteadyKept] = {report.bubble, result.norm_wait_ms};
  }
  report.bubble_predicted = run_.predicted.bubble;
  if (const std::optional<double> peak = run_.session.peak_flops(); peak && run_.computes()) {
    report.mfu = model_flops_utilisation(run_.inputs.model, batch.seq_len, report.tokens, result.ms, *peak);
  }
  return report;
}

// The time for steps' marks and for copying them, as a fraction of the time of all steps.
double StepMeter::measuring_share() const {
  constexpr int kMarks = 64;
  const double begin = monotonic_seconds();
  for (int i = 0; i < kMarks; ++i) run_.session.device().mark();
  const double mark_ms = (monotonic_seconds() - begin) * 1000 / kMarks;
  const std::size_t marks = 3 * (run_.trainer->last_step_marks().size() + run_.trainer->lowered_marks().size());
  return (keeping_ms_ + static_cast<double>(marks) * mark_ms * static_cast<double>(steps_taken_)) / steps_ms_;
}

// Medians: a usual step, without disturbances.
SteadySteps StepMeter::steady_steps() const {
  const auto kept = std::min<std::size_t>(static_cast<std::size_t>(steady_count_), kSteadyKept);
  const auto median = [&](const auto& number_of) {
    std::vector<double> all;
    for (std::size_t i = 0; i < kept; ++i) all.push_back(number_of(steady_[i]));
    std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>((kept - 1) / 2));
    return all[(kept - 1) / 2];
  };
  return {.steps = steady_count_,
          .period_ms = median([](const Steady& one) { return one.bubble.makespan; }),
          .bubble = median([](const Steady& one) { return one.bubble.bubble; }),
          .norm_wait_ms = median([](const Steady& one) { return one.norm_wait_ms; })};
}

void StepMeter::show_results() {
  recorder_.hand_on();
  std::vector<MeasuredStep> steps = gather_steps(run_.groups, run_.plan, records_);
  if (!run_.session.is_first()) return;
  RunLog& log = *run_.log;
  if (steady_count_ > 0) log.steady(steady_steps(), run_.predicted);
  if (steps.empty()) return log.essential("note: no step was taken: nothing to measure, to trace or to draw");
  char text[100];
  if (clock_needed_at_ > 0) {
    std::snprintf(text, sizeof text, "the hosts' clocks agree to within %.3f ms", clock_.error_ms);
    log.text(text);
  }
  const double share = measuring_share();
  ::train_gpt::show_results(log, run_.options.run, run_.plan,
                            {.steps = std::move(steps), .predicted = run_.predicted, .measuring_share = share});
  std::snprintf(text, sizeof text, "measuring took %.4f%% of the time of the steps", 100 * share);
  log.text(text);
}

}  // namespace train_gpt
