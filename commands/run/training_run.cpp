#include "commands/run/training_run.h"

#include <cmath>
#include <cstdlib>

#include "commands/run/results.h"
#include "data/byte_tokenizer.h"
#include "model/flops.h"

namespace train_gpt {

Batch TrainingRun::training_batch(std::int64_t step) const {
  const SampleOrder order{.windows = train_data_->window_count(),
                          .rows = plan_.request.batch.step_rows(),
                          .shuffle = options_.data.shuffle,
                          .seed = options_.data.seed};
  return {
      .inputs = [this, order, step](std::int32_t* out,
                                    std::int64_t row) { train_data_->read_inputs(out, order.window(step, row)); },
      .targets = [this, order, step](std::int32_t* out,
                                     std::int64_t row) { train_data_->read_targets(out, order.window(step, row)); }};
}

double TrainingRun::validate() {
  const std::int64_t rows = plan_.request.batch.step_rows();
  double sum = 0;
  for (std::int64_t k = 0; k < options_.run.val_batches; ++k) {
    const Batch batch{
        .inputs = [&](std::int32_t* out, std::int64_t row) { val_data_->read_inputs(out, k * rows + row); },
        .targets = [&](std::int32_t* out, std::int64_t row) { val_data_->read_targets(out, k * rows + row); }};
    sum += trainer_->validate(batch);
  }
  return sum / static_cast<double>(options_.run.val_batches);
}

void TrainingRun::evaluate() {
  state_->set_stepping(true);
  const double loss = validate();
  state_->set_stepping(false);
  log_->validation(0, loss);
  log_->end(trainer_->parameter_hash(), loss);
  state_->finish();
}

void TrainingRun::train() {
  const RunOptions& run = options_.run;
  const auto validate_and_log = [&](std::int64_t step) {
    state_->set_stepping(true);
    const double loss = validate();
    state_->set_stepping(false);
    log_->validation(step, loss);
  };
  const std::int64_t first = resumed_.manifest.step;
  for (std::int64_t s = first; s < run.steps; ++s) {
    state_->set_step(s);
    const auto validates = [&](std::int64_t step) { return val_data_ && due(run.val_every, step); };
    const auto samples = [&](std::int64_t step) { return step > 0 && due(run.sample_every, step); };
    if (validates(s)) validate_and_log(s);
    if (samples(s)) show_sample(s);
    const bool last = s + 1 == run.steps || stop_asked_;
    const bool saves = last || due(run.checkpoint_every, s + 1);
    const bool straight_on = !last && !saves && !validates(s + 1) && !samples(s + 1);
    step(s, straight_on);
    // An optimistic step may have begun the next one, which is then the last.
    const bool ends = last || (stop_asked_ && !(straight_on && optimistic()));
    if (plan_.request.computes && (saves || ends)) write_checkpoint(s + 1);
    if (ends && s + 1 < run.steps) return end_early(s + 1);
  }
  if (val_data_) validate_and_log(run.steps);
  if (run.sample_every > 0) show_sample(run.steps);
  show_results();
  if (plan_.request.computes) {
    const std::string model_path = run.output + "/model.bin";
    trainer_->save(model_path, Precision::fp32);
    log_->text("model written to " + model_path);
  }
  log_->end(plan_.request.computes ? trainer_->parameter_hash() : "", last_loss_,
            optimistic() ? std::optional(redone_steps_) : std::nullopt);
  state_->finish();
}

// Asked to stop: what was measured is shown, and there is neither a model file nor an end event of a run that is not
// over.
void TrainingRun::end_early(std::int64_t steps_taken) {
  show_results();
  log_->text("stopped by SIGUSR1 after " + std::to_string(steps_taken) + " of " + std::to_string(options_.run.steps) +
             " steps" + (plan_.request.computes ? "; --resume latest goes on" : ""));
  state_->finish();
}

int TrainingRun::guarded(const std::function<void()>& body) {
  const std::string who = "rank " + std::to_string(session_.world().rank());
  try {
    body();
    return 0;
  } catch (const PeerFailure& failure) {
    std::fprintf(stderr, "train_gpt: %s: %s\n", who.c_str(), failure.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_gpt: error: %s: %s\n", who.c_str(), error.what());
    std::fflush(stderr);
    watchdog_->announce(error.what());
  }
  std::fflush(stderr);
  session_.world().abort(1);
  std::abort();
}

// Hosts count time from different moments, and drift: every few seconds their clocks are compared. When is decided by
// what all ranks know alike.
void TrainingRun::align_clocks() {
  constexpr double kEveryMs = 5000;
  if (one_host_ || last_end_ms_ < clock_needed_at_) return;
  clock_ = measure_clock_offset(session_.world(), [] { return 1000 * monotonic_seconds(); });
  trainer_->set_clock_ahead(clock_.ms);
  clock_needed_at_ = last_end_ms_ + kEveryMs;
}

void TrainingRun::step(std::int64_t s, bool straight_on) {
  align_clocks();
  state_->set_stepping(true);
  StepReport report;
  report.step = s;
  report.steps = options_.run.steps;
  report.tokens = plan_.request.batch.step_tokens();
  const auto batch_of = [&](std::int64_t k) { return plan_.request.computes ? training_batch(k) : Batch{}; };
  const Batch next = batch_of(s + 1);
  report.result = trainer_->step(s, batch_of(s), straight_on ? &next : nullptr);
  if (optimistic()) report.redone = report.result.redone;
  redone_steps_ += report.result.redone ? 1 : 0;
  state_->set_stepping(false);
  const double begin = monotonic_seconds();
  records_->keep(s, session_.device(), *trainer_);
  keeping_ms_ += (monotonic_seconds() - begin) * 1000;
  steps_ms_ += report.result.ms;
  ++steps_taken_;
  const auto pipeline =
      std::span<const RankTimes>(report.result.times).first(static_cast<std::size_t>(layout_.pipeline));
  report.bubble = step_bubble(pipeline);
  report.bubble_predicted = predicted_.bubble;
  for (const RankTimes& times : report.result.times) last_end_ms_ = std::max(last_end_ms_, times.last_end);
  if (const std::optional<double> peak = session_.peak_flops(); peak && plan_.request.computes) {
    const double flops = static_cast<double>(report.tokens * flops_per_token(model_, plan_.request.batch.seq_len));
    report.mfu = flops / (report.result.ms / 1000) / *peak;
  }
  last_loss_ = report.result.loss;
  stop_asked_ = report.result.stop_asked;
  log_->step(report);
}

void TrainingRun::write_checkpoint(std::int64_t steps_taken) {
  CheckpointManifest manifest = manifest_;
  manifest.step = steps_taken;
  if (std::isfinite(last_loss_)) manifest.loss = last_loss_;
  ++manifest_.counter;
  const std::string folder =
      ::train_gpt::write_checkpoint(*trainer_, session_.world(), options_.run.output, manifest, options_.run.keep);
  log_->text("checkpoint written to " + folder);
}

void TrainingRun::show_sample(std::int64_t s) {
  constexpr std::int64_t kTokens = 120;
  std::string text;
  ByteDecoder decoder;
  const bool bytes = is_byte_level(model_.vocab);
  const std::vector<std::int32_t> prompt = {bytes ? kByteEndOfText : 0};
  trainer_->generate(prompt, kTokens, 0.8, options_.data.seed + static_cast<std::uint64_t>(s),
                     [&](std::int32_t id) { text += bytes ? decoder.push(id) : std::to_string(id) + " "; });
  log_->text("sample after " + std::to_string(s) + " steps:\n" + text + (bytes ? decoder.finish() : ""));
}

// What the marks of a step and the copies of them cost, as a part of the time of all steps.
double TrainingRun::measuring_share() const {
  constexpr int kMarks = 64;
  const double begin = monotonic_seconds();
  for (int i = 0; i < kMarks; ++i) session_.device().mark();
  const double mark_ms = (monotonic_seconds() - begin) * 1000 / kMarks;
  const std::size_t marks = 3 * (trainer_->last_step_marks().size() + trainer_->lowered_marks().size());
  const auto steps = static_cast<double>(steps_taken_);
  return (keeping_ms_ + static_cast<double>(marks) * mark_ms * steps) / steps_ms_;
}

void TrainingRun::show_results() {
  std::vector<MeasuredStep> steps = gather_steps(groups_, plan_, *records_);
  if (!session_.is_first()) return;
  if (steps.empty()) return log_->text("note: no step was taken: nothing to measure, to trace or to draw");
  if (clock_needed_at_ > 0) {
    char text[100];
    std::snprintf(text, sizeof text, "the hosts' clocks agree to within %.3f ms", clock_.error_ms);
    log_->text(text);
  }
  const double share = measuring_share();
  ::train_gpt::show_results(*log_, options_.run, plan_,
                            {.steps = std::move(steps),
                             .predicted = predicted_,
                             .measuring_share = share,
                             .facts = {session_.resources(), model_line(model_, plan_.request.batch)}});
  char text[100];
  std::snprintf(text, sizeof text, "measuring took %.4f%% of the time of the steps", 100 * share);
  log_->text(text);
}

}  // namespace train_gpt
