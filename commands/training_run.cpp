#include "commands/training_run.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "commands/action_time.h"
#include "commands/run_results.h"
#include "data/byte_tokenizer.h"
#include "model/flops.h"
#include "model/range_file.h"
#include "pipeline/plan_memory.h"
#include "pipeline/validate.h"

namespace train_gpt {
namespace {

std::string model_line(const ModelConfig& model, const BatchShape& batch) {
  return "model: " + std::to_string(model.layers) + " layers, " + std::to_string(model.heads) + " heads, hidden " +
         std::to_string(model.hidden) + ", vocabulary " + std::to_string(model.vocab) +
         (model.tied ? ", tied" : ", untied") + ": " + std::to_string(parameter_count(model)) +
         " parameters; step: " + std::to_string(batch.replicas) + " x " + std::to_string(batch.micro_batches) +
         " micro-batches of " + std::to_string(batch.rows) + " rows of " + std::to_string(batch.seq_len) + " = " +
         std::to_string(batch.step_tokens()) + " tokens";
}

}  // namespace

TrainingRun::TrainingRun(Session& session, const Options& options) : session_(session), options_(options) {
  session_.together([&] { open_inputs(); });
  if (!options_.run.resume.empty()) choose_checkpoint();
  make_plan_and_trainer();
  one_host_ = session_.host().ranks == session_.world().size();
  install_hooks();
  log_->text(session_.resources());
  log_->text(model_line(model_, plan_.request.batch));
  for (const std::string& notice : notices_) log_->text("note: " + notice);
  if (!choice_.schedule_reason.empty()) log_->text(choice_.schedule_reason);
  log_->text(partition_table(choice_, costs_));
  log_->text(memory_table(plan_));
  if (plan_.request.computes) fill_parameters();
  if (trains()) predict();
}

// Everything that needs files or sizes and no other rank.
void TrainingRun::open_inputs() {
  layout_ = make_layout(session_.world().size(), options_.batch.data_parallel);
  model_ = model_config(options_);
  named_ = named_schedule(options_, layout_.pipeline);
  if (named_) notices_ = ::train_gpt::validate(*named_).notices;
  const BatchShape batch = batch_shape(options_, named_);
  if (batch.seq_len > model_.max_seq_len) {
    throw std::invalid_argument("--seq-len " + std::to_string(batch.seq_len) + " is longer than the model's " +
                                std::to_string(model_.max_seq_len) + " positions: lower it or raise --max-seq-len");
  }
  if (session_.is_timed()) {
    check_timed();
  } else if (trains()) {
    train_data_.emplace(options_.data.train_data, "--train-data", batch.seq_len, model_.vocab);
    train_data_->require_rows(batch.step_rows());
    manifest_ = manifest_of_run(options_, model_, batch, train_data_->window_count());
  } else if (options_.data.val_data.empty()) {
    throw std::invalid_argument("evaluate needs --val-data GLOB, the token files to evaluate on");
  }
  if (!options_.data.val_data.empty()) {
    val_data_.emplace(options_.data.val_data, "--val-data", batch.seq_len, model_.vocab);
    val_data_->require_batches(options_.run.val_batches, batch.step_rows());
  }
  optimizer_settings(options_);
  std::error_code error;
  std::filesystem::create_directories(options_.run.output, error);
  if (error || !std::filesystem::is_directory(options_.run.output)) {
    throw std::invalid_argument("--output " + options_.run.output + " is not a directory that can be written: " +
                                (error ? error.message() : "a file of that name exists"));
  }
  if (trains()) check_replaceable(options_.run.output + "/model.bin");  // before the work, not after it
  if (trains() && session_.is_first()) check_result_files(options_.run);
}

void TrainingRun::choose_checkpoint() {
  const std::string& wanted = options_.run.resume;
  resumed_ = find_checkpoint(session_.world(), wanted, options_.run.output);
  for (const std::string& passed_over : resumed_.passed_over) notices_.push_back("passed over " + passed_over);
  session_.together([&] {
    if (resumed_.folder.empty()) {
      std::string why;
      for (const std::string& passed_over : resumed_.passed_over) why += "; " + passed_over;
      throw std::invalid_argument("--resume " + wanted + ": " +
                                  (wanted == "latest" ? options_.run.output + "/checkpoints has no complete checkpoint"
                                                      : "is not a complete checkpoint") +
                                  why);
    }
    require_same_run(resumed_.manifest, manifest_, options_.run.steps, resumed_.folder);
  });
  for (const std::string& changed : changed_settings(resumed_.manifest, manifest_)) notices_.push_back(changed);
}

void TrainingRun::fill_parameters() {
  session_.together([&] {
    if (!resumed_.folder.empty()) {
      load_checkpoint(*trainer_, resumed_);
    } else if (options_.model.init_file.empty()) {
      trainer_->initialise(options_.data.seed);
    } else {
      trainer_->load(ModelFile(options_.model.init_file));
    }
  });
  if (resumed_.folder.empty()) return;
  const std::string hash = trainer_->parameter_hash();
  session_.together([&] {
    if (hash == resumed_.manifest.parameter_hash) return;
    throw std::runtime_error(resumed_.folder + ": the parameters that were loaded have the hash " + hash +
                             ", its manifest says " + resumed_.manifest.parameter_hash);
  });
  log_->resumed(resumed_.manifest.step, resumed_.folder);
}

// The timed device computes nothing, so nothing can be said about its losses.
void TrainingRun::check_timed() const {
  const int stages = options_.costs.stages;
  if (stages != 0 && stages != layout_.pipeline) {
    throw std::invalid_argument("--stages " + std::to_string(stages) + ", but a pipeline here has " +
                                std::to_string(layout_.pipeline) + " ranks: leave the option out");
  }
  const char* needs_parameters = !trains()                           ? "evaluate"
                                 : !options_.data.val_data.empty()   ? "--val-data"
                                 : options_.run.sample_every > 0     ? "--sample-every"
                                 : options_.run.checkpoint_every > 0 ? "--checkpoint-every"
                                 : !options_.run.resume.empty()      ? "--resume"
                                                                     : nullptr;
  if (needs_parameters == nullptr) return;
  throw std::invalid_argument(std::string(needs_parameters) +
                              " has no meaning with --device timed, which computes nothing: leave out one");
}

// Of the units, before anything is planned: from --profile, --cost-* or a quick measurement; collective.
CostModel TrainingRun::find_costs() {
  const int p = layout_.pipeline;
  const BatchShape batch = batch_shape(options_, named_);
  const std::string& path = options_.pipeline.profile;
  if (!path.empty()) {
    CostModel costs;
    session_.together([&] {
      const Profile profile = load_profile(path);
      check_profile(profile, path, profile_sizes(model_, batch.rows, batch.seq_len, session_.device().precision()));
      costs = cost_model(profile, model_, p, "of " + path);
    });
    return costs;
  }
  if (session_.is_timed()) return given_cost_model(options_.costs.costs, model_, batch.seq_len, p);
  if (p == 1) return estimated_cost_model(model_, batch.seq_len, p);  // nothing is to be chosen
  session_.together([&] {
    check_host_memory(smallest_plan(options_, model_, p, session_.device()), session_.host().members,
                      session_.host_memory());
  });
  const Profile profile =
      measure_profile(session_.device(), session_.world(), p, model_, batch.rows, batch.seq_len, {});
  return cost_model(profile, model_, p, "measured at start-up");
}

void TrainingRun::make_plan_and_trainer() {
  costs_ = find_costs();
  session_.together([&] {
    PlanRequest request = plan_request(options_, model_, named_, session_.device());
    request.training = trains();
    request.computes = !session_.is_timed();
    ChoiceRequest open = choice_request(options_, request, named_, layout_.pipeline, costs_);
    open.device_bytes = session_.memory_per_rank();
    const bool recompute = open.recompute == ChoiceRequest::Recompute::automatic;
    if (recompute && open.memory_limit == 0) open.memory_limit = open.device_bytes;
    choice_ = choose(open);
    plan_ = choice_.plan;
    schedule_ = plan_.request.schedule;
    check_memory_limit(plan_, options_.pipeline.memory_limit);
    check_host_memory(plan_, session_.host().members, session_.host_memory());
    const int rank = session_.world().rank();
    log_ = std::make_unique<RunLog>(options_.run.output, session_.is_first(), /*append=*/!resumed_.folder.empty());
    state_ = std::make_unique<StateFile>(options_.run.output, rank, session_.world().size());
  });
  groups_ = make_groups(session_.world(), layout_, schedule_, model_);
  session_.together(
      [&] { trainer_ = std::make_unique<Trainer>(session_.device(), groups_, plan_, optimizer_settings(options_)); });
  if (trains()) {
    records_ = std::make_unique<StepRecords>(plan_.ranks[static_cast<std::size_t>(groups_.rank())].actions.size(),
                                             trainer_->lowered().size(), kStepsKept);
  }
  trainer_->open();
}

void TrainingRun::install_hooks() {
  watchdog_ = std::make_unique<Watchdog>(*state_, options_.run.output, session_.world().rank(), session_.world().size(),
                                         [this] { return trainer_->doing(); });
  trainer_->set_hooks([this] { watchdog_->while_computing(); }, [this] { watchdog_->while_waiting(); });
  trainer_->set_stop_wish(Watchdog::wishes_to_stop);
  if (trains()) watchdog_->listen_for_wish_to_stop();
  ActionDelays delays(session_.delays(), session_.world().rank());
  const bool timed = session_.is_timed();
  if (!timed && !delays.any()) return;
  std::vector<double> durations;
  if (timed) durations = action_durations(schedule_, choice_.costs, groups_.rank());
  trainer_->executor().set_extra_work([this, delays, durations](std::size_t position) mutable {
    const double ms = delays.next() + (durations.empty() ? 0 : durations[position]);
    spend(ms, [this] {
      groups_.progress();
      watchdog_->while_computing();
    });
  });
}

// What the stages cost - measured in place, unless a profile or --cost-* say so - and what the schedule makes of it.
void TrainingRun::predict() {
  stage_costs_ = choice_.costs;
  if (plan_.request.computes && options_.pipeline.profile.empty()) {
    const StageCosts measured = trainer_->measure_stages();
    stage_costs_.forward = measured.forward;
    stage_costs_.input = measured.input;
    stage_costs_.weight = measured.weight;
  }
  predicted_ = simulate(schedule_, stage_costs_);
  // The uniform cut was compared by the costs of single units; what stages cost in place scales both alike.
  std::optional<double> uniform = choice_.uniform_makespan;
  if (uniform && choice_.predicted.makespan > 0) *uniform *= predicted_.makespan / choice_.predicted.makespan;
  log_->plan(plan_, predicted_, uniform);
  char text[200];
  std::snprintf(text, sizeof text,
                "schedule %s: predicted %.1f ms from first to last action, bubble %.1f%% (span %.1f%%)",
                schedule_.name.c_str(), predicted_.makespan, 100 * predicted_.bubble, 100 * predicted_.bubble_span);
  log_->text(text);
}

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
