// Setting up a training run: input, plan, memory, parameters, prediction.
#include "commands/run/training_run.h"

#include <limits>

#include "commands/run/action_time.h"
#include "commands/run/results.h"
#include "model/range_file.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/simulate/validate.h"

namespace train_gpt {

TrainingRun::TrainingRun(Session& session, const Options& options, RunFolder* folder)
    : session_(session), options_(options), folder_(folder) {
  session_.together([&] { open_inputs(); });
  if (!options_.run.resume.empty()) choose_checkpoint();
  make_plan_and_trainer();
  one_host_ = session_.host().ranks == session_.world().size();
  install_hooks();
  if (folder_ != nullptr) log_->text("run " + folder_->run() + " in " + folder_->path());
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
  check_positions(options_, model_);
  if (session_.is_timed()) {
    check_timed();
  } else if (trains()) {
    train_data_.emplace(options_.data.train_data, "--train-data", batch.seq_len, model_.vocab);
    train_data_->require_rows(batch.step_rows());
    std::vector<std::string> files;
    for (const TokenFile& shard : train_data_->shards()) files.push_back(shard.path());
    manifest_ = manifest_of_run(options_, model_, batch, train_data_->window_count(), identities_of(files),
                                "summation rules 1");
    manifest_.run = folder_->run();
  } else if (options_.data.val_data.empty()) {
    throw std::invalid_argument("evaluate needs --val-data GLOB, the token files to evaluate on");
  }
  if (!options_.data.val_data.empty()) {
    val_data_.emplace(options_.data.val_data, "--val-data", batch.seq_len, model_.vocab);
    val_data_->require_batches(options_.run.val_batches, batch.step_rows());
  }
  optimizer_settings(options_);
  if (trains()) check_replaceable(options_.run.output + "/model.bin");  // before the work, not after it
  if (trains() && session_.is_first()) check_result_files(options_.run);
}

void TrainingRun::choose_checkpoint() {
  const std::string& wanted = options_.run.resume;
  resumed_ = find_checkpoint(session_.world(), wanted, options_.run.output);
  for (const std::string& passed_over : resumed_.passed_over) notices_.push_back("passed over " + passed_over);
  if (resumed_.folder.empty() && wanted == "auto") return;
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
  manifest_.counter = resumed_.manifest.counter + 1;
  last_loss_ = resumed_.manifest.loss.value_or(std::numeric_limits<double>::quiet_NaN());
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
    if (folder_ != nullptr) {
      for (std::string& note : folder_->begin(resumed_.manifest.step)) notices_.push_back(std::move(note));
    }
    const bool goes_on = folder_ != nullptr && folder_->continues();
    log_ = std::make_unique<RunLog>(options_.run.output, session_.is_first(), /*append=*/goes_on);
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
  trainer_->set_stop_wish(wishes_to_stop);
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

}  // namespace train_gpt
