#include "commands/run/log_events.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "commands/cli/version.h"
#include "commands/run/command_line.h"
#include "pipeline/train/state_file.h"

namespace train_gpt {
namespace {

// The units of the model that repeat their forward.
std::vector<int> recomputed_units(const PlanRequest& request) {
  std::vector<int> units;
  for (std::size_t u = 0; u < request.recompute.size(); ++u) {
    if (request.recompute[u]) units.push_back(static_cast<int>(u));
  }
  return units;
}

// Mean time of each operation that the schedule has, per virtual stage.
Event stage_ms(const Schedule& schedule, const Simulation& measured) {
  const auto means = stage_means(schedule, measured);
  Event result = Event::object();
  for (std::size_t op = 0; op < means.size(); ++op) {
    if (std::all_of(means[op].begin(), means[op].end(), [](double mean) { return mean == 0; })) continue;
    result[std::string(1, op_letter(static_cast<Op>(op)))] = means[op];
  }
  return result;
}

}  // namespace

std::string line_of(const Event& event) {
  return event.dump(-1, ' ', /*ensure_ascii=*/true, Event::error_handler_t::replace);
}

Event start_event(const RunStart& start, const Options& options, const std::string& date) {
  const OptimizerOptions& optimizer = options.optimizer;
  return {{"event", "start"},
          {"log_version", kLogVersion},
          {"time", date},
          {"host", host_name()},
          {"process", getpid()},
          {"program", std::string("train_gpt ") + kVersion},
          {"command_line", own_command_line()},
          {"device", start.device},
          {"model", start.model},
          {"first_step", start.first_step},
          {"steps", options.run.steps},
          {"tokens_per_step", start.tokens_per_step},
          {"seed", options.data.seed},
          {"shuffle", options.data.shuffle},
          {"optimizer", to_string(optimizer.optimizer)},
          {"muon_scale", optimizer.optimizer == OptimizerKind::muon ? Event(to_string(optimizer.muon_scale)) : nullptr},
          {"learning_rate", optimizer.learning_rate},
          {"lr_schedule", to_string(optimizer.lr_schedule)},
          {"warmup_steps", optimizer.warmup_steps},
          {"min_lr_fraction", optimizer.min_lr_fraction},
          {"weight_decay", optimizer.weight_decay},
          {"grad_clip", optimizer.grad_clip},
          {"train_data", start.training_tokens > 0 ? options.data.train_data : ""},
          {"training_tokens", start.training_tokens},
          {"val_data", options.data.val_data},
          {"validation_tokens", start.validation_tokens}};
}

Event plan_event(const Plan& plan, const Simulation& predicted, std::optional<double> uniform_makespan) {
  const PlanRequest& request = plan.request;
  Event ranks = Event::array();
  for (const RankPlan& rank : plan.ranks) {
    Event memory;
    for (const MemoryLine& line : rank.memory) memory[line.name] = line.bytes;
    ranks.push_back({{"rank", rank.rank},
                     {"bytes", rank.total_bytes()},
                     {"copy_bytes", rank.copy_bytes},
                     {"live_micro_batches", rank.live_micro_batches},
                     {"memory", memory}});
  }
  Event stage_ranks = Event::array(), stage_units = Event::array();
  for (const Placement::VirtualStage& stage : request.schedule.placement.stages) stage_ranks.push_back(stage.rank);
  for (const UnitRange& units : unit_ranges(request.schedule.placement, request.partition)) {
    stage_units.push_back({units.first, units.last});
  }
  Event json = {
      {"event", "plan"},
      {"schedule", request.schedule.name},
      {"stages", request.schedule.ranks},
      {"chunks", request.schedule.chunks},
      {"micro_batches", request.batch.micro_batches},
      {"micro_batch_size", request.batch.rows},
      {"seq_len", request.batch.seq_len},
      {"data_parallel", request.batch.replicas},
      {"accumulation_groups", request.batch.groups},
      {"zero", request.zero},
      {"layers", request.model.layers},
      {"heads", request.model.heads},
      {"hidden", request.model.hidden},
      {"vocab", request.model.vocab},
      {"tied", request.model.tied},
      {"parameters", parameter_count(request.model)},
      {"partition", request.partition},
      {"stage_ranks", stage_ranks},
      {"stage_units", stage_units},
      {"head", head_text(plan)},
      {"recomputed_units", recomputed_units(request)},
      {"bubble_predicted", predicted.bubble},
      {"bubble_span_predicted", predicted.bubble_span},
      {"step_ms_predicted", predicted.makespan},
      {"tokens_per_s_predicted", static_cast<double>(request.batch.step_tokens()) / predicted.makespan * 1000}};
  if (request.reduction_ms > 0) json["reduction_ms"] = request.reduction_ms;
  if (uniform_makespan) json["step_ms_predicted_uniform"] = *uniform_makespan;
  json["ranks"] = std::move(ranks);
  return json;
}

Event step_event(const StepReport& report, const Progress& progress) {
  const StepResult& result = report.result;
  Event json = {{"event", "step"},
                {"step", report.step},
                {"loss", result.loss},
                {"grad_norm", result.grad_norm},
                {"lr", result.learning_rate},
                {"ms", result.ms},
                {"tokens_per_s", report.tokens_per_s()},
                {"bubble", report.bubble.bubble},
                {"bubble_span", report.bubble.bubble_span},
                {"bubble_predicted", report.bubble_predicted},
                {"mfu", report.mfu ? Event(*report.mfu) : Event(nullptr)},
                {"elapsed_s", progress.elapsed_s},
                {"eta_s", progress.left_s},
                {"tokens_per_s_mean", progress.tokens_per_s_mean},
                {"epoch", progress.epoch ? Event(*progress.epoch) : Event(nullptr)}};
  if (report.scores.loss) json["loss_z"] = *report.scores.loss;
  if (report.scores.norm) json["norm_z"] = *report.scores.norm;
  if (result.skipped) json["skipped"] = true;
  if (result.steady) json["steady"] = true;
  if (report.redone) json["redone"] = *report.redone;
  return json;
}

Event steady_event(const SteadySteps& steady, const Simulation& predicted) {
  return {{"event", "steady"},
          {"steps", steady.steps},
          {"period_ms", steady.period_ms},
          {"period_ms_predicted", predicted.makespan},
          {"bubble", steady.bubble},
          {"bubble_predicted", predicted.bubble},
          {"norm_wait_ms", steady.norm_wait_ms}};
}

Event validation_event(std::int64_t step, double loss, std::optional<double> bits_per_byte) {
  Event json = {{"event", "validation"}, {"step", step}, {"loss", loss}, {"perplexity", std::exp(loss)}};
  if (bits_per_byte) json["bits_per_byte"] = *bits_per_byte;
  return json;
}

Event multiple_choice_event(std::int64_t step, const MultipleChoiceResult& result) {
  const auto share = [&](std::int64_t right) {
    return static_cast<double>(right) / static_cast<double>(result.questions);
  };
  return {{"event", "multiple_choice"},         {"step", step},
          {"questions", result.questions},      {"by_sum", share(result.by_sum)},
          {"by_token", share(result.by_token)}, {"by_byte", share(result.by_byte)}};
}

Event answer_event(std::size_t question, const MultipleChoiceResult::Answer& answer) {
  return {{"event", "answer"},
          {"question", question},
          {"label", answer.label},
          {"by_sum", answer.by_sum},
          {"by_token", answer.by_token},
          {"by_byte", answer.by_byte},
          {"log_probabilities", answer.log_probabilities}};
}

Event measurement_event(const Schedule& schedule, const StepAnalysis& analysis, std::size_t steps_kept,
                        double measuring_share) {
  const auto parts = [](const IdleParts& it) {
    return Event{{"schedule_ms", it.schedule},
                 {"imbalance_ms", it.imbalance},
                 {"jitter_ms", it.jitter},
                 {"communication_ms", it.communication}};
  };
  Event ranks = Event::array();
  for (std::size_t r = 0; r < analysis.ranks.size(); ++r) {
    const RankAnalysis& it = analysis.ranks[r];
    Event rank = {{"rank", r}, {"busy_ms", it.busy}, {"waiting_ms", it.waiting}, {"idle_ms", it.idle}};
    rank.update(parts(it.parts));
    rank.update(Event{{"reduction_ms", it.reduction}, {"update_ms", it.update}, {"post_flush_ms", it.post_flush}});
    ranks.push_back(std::move(rank));
  }
  Event json = {{"event", "measurement"},
                {"step", analysis.step},
                {"steps_kept", steps_kept},
                {"makespan_ms", analysis.measured.makespan},
                {"makespan_ms_predicted", analysis.predicted.makespan},
                {"bubble", analysis.measured.bubble},
                {"bubble_predicted", analysis.predicted.bubble},
                {"bubble_span", analysis.measured.bubble_span},
                {"bubble_span_predicted", analysis.predicted.bubble_span},
                {"idle_ms", analysis.idle.all.sum()}};
  json.update(parts(analysis.idle.all));
  json["measuring_share"] = measuring_share;
  json["stage_ms"] = stage_ms(schedule, analysis.measured);
  json["ranks"] = std::move(ranks);
  return json;
}

}  // namespace train_gpt
