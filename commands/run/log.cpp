#include "commands/run/log.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

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

// Which units of the model repeat their forward.
std::vector<int> recomputed_units(const PlanRequest& request) {
  std::vector<int> units;
  for (std::size_t u = 0; u < request.recompute.size(); ++u) {
    if (request.recompute[u]) units.push_back(static_cast<int>(u));
  }
  return units;
}

}  // namespace

RunLog::RunLog(const std::string& directory, bool writes, bool append)
    : writes_(writes), path_(directory + "/log.jsonl") {
  if (!writes_) return;
  if (append) drop_unfinished_line(path_);
  file_.open(path_, append ? std::ios::app : std::ios::trunc);
  if (!file_) throw std::runtime_error(path_ + " cannot be written (--output names its directory)");
}

void RunLog::text(const std::string& line) {
  if (!writes_) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void RunLog::event(const std::string& json) {
  if (!writes_) return;
  file_ << json << '\n' << std::flush;
  if (!file_) throw std::runtime_error(path_ + ": writing failed; is the disk full?");
}

void RunLog::plan(const Plan& plan, const Simulation& predicted, std::optional<double> uniform_makespan) {
  event(plan_event(plan, predicted, uniform_makespan));
}

std::string plan_event(const Plan& plan, const Simulation& predicted, std::optional<double> uniform_makespan) {
  const PlanRequest& request = plan.request;
  Json ranks = Json::array();
  for (const RankPlan& rank : plan.ranks) {
    Json memory;
    for (const MemoryLine& line : rank.memory) memory[line.name] = line.bytes;
    ranks.push_back({{"rank", rank.rank},
                     {"bytes", rank.total_bytes()},
                     {"live_micro_batches", rank.live_micro_batches},
                     {"memory", memory}});
  }
  Json json = {
      {"event", "plan"},
      {"schedule", request.schedule.name},
      {"stages", request.schedule.ranks},
      {"chunks", request.schedule.chunks},
      {"micro_batches", request.batch.micro_batches},
      {"micro_batch_size", request.batch.rows},
      {"seq_len", request.batch.seq_len},
      {"data_parallel", request.batch.replicas},
      {"accumulation_groups", request.batch.groups},
      {"layers", request.model.layers},
      {"heads", request.model.heads},
      {"hidden", request.model.hidden},
      {"vocab", request.model.vocab},
      {"tied", request.model.tied},
      {"parameters", parameter_count(request.model)},
      {"partition", request.partition},
      {"head", head_text(plan)},
      {"recomputed_units", recomputed_units(request)},
      {"bubble_predicted", predicted.bubble},
      {"bubble_span_predicted", predicted.bubble_span},
      {"step_ms_predicted", predicted.makespan},
      {"tokens_per_s_predicted", static_cast<double>(request.batch.step_tokens()) / predicted.makespan * 1000}};
  if (uniform_makespan) json["step_ms_predicted_uniform"] = *uniform_makespan;
  json["ranks"] = std::move(ranks);
  return json.dump();
}

void RunLog::resumed(std::int64_t step, const std::string& checkpoint) {
  const Json json = {{"event", "resume"}, {"step", step}, {"checkpoint", checkpoint}};
  event(json.dump(-1, ' ', false, Json::error_handler_t::replace));  // names of folders may be no UTF-8
  text(format("resumed at step %lld from %s", static_cast<long long>(step), checkpoint.c_str()));
}

void RunLog::step(const StepReport& report) {
  const StepResult& result = report.result;
  const double tokens_per_s = static_cast<double>(report.tokens) / result.ms * 1000;
  Json json = {{"event", "step"},
               {"step", report.step},
               {"loss", result.loss},
               {"grad_norm", result.grad_norm},
               {"lr", result.learning_rate},
               {"ms", result.ms},
               {"tokens_per_s", tokens_per_s},
               {"bubble", report.bubble.bubble},
               {"bubble_span", report.bubble.bubble_span},
               {"bubble_predicted", report.bubble_predicted},
               {"mfu", report.mfu ? Json(*report.mfu) : Json(nullptr)}};
  if (report.scores.loss) json["loss_z"] = *report.scores.loss;
  if (report.scores.norm) json["norm_z"] = *report.scores.norm;
  if (result.skipped) json["skipped"] = true;
  if (report.redone) json["redone"] = *report.redone;
  event(json.dump());
  std::string line =
      format("step %5lld/%lld  ", static_cast<long long>(report.step), static_cast<long long>(report.steps));
  if (std::isfinite(result.loss)) {
    line += format("loss %.6f  norm %8.4f  lr %.3e  ", result.loss, result.grad_norm, result.learning_rate);
  }
  line += format("%8.1f ms  %8.0f tok/s  MFU ", result.ms, tokens_per_s);
  line += report.mfu ? format("%.1f%%", 100 * *report.mfu) : "n/a";
  line += format("  bubble %.1f%% (predicted %.1f%%)", 100 * report.bubble.bubble, 100 * report.bubble_predicted);
  if (result.skipped) line += "  skipped: loss or norm is not finite";
  if (report.scores.spike) {
    line += format("  SPIKE: loss %+.1f, norm %+.1f standard deviations", report.scores.loss.value_or(0),
                   report.scores.norm.value_or(0));
  }
  text(line);
}

void RunLog::validation(std::int64_t step, double loss, std::optional<double> bits_per_byte) {
  Json json = {{"event", "validation"}, {"step", step}, {"loss", loss}, {"perplexity", std::exp(loss)}};
  std::string line = format("validation after %lld updates: loss %.6f, perplexity %.4g", static_cast<long long>(step),
                            loss, std::exp(loss));
  if (bits_per_byte) {
    json["bits_per_byte"] = *bits_per_byte;
    line += format(", %.4f bits per byte", *bits_per_byte);
  }
  event(json.dump());
  text(line);
}

void RunLog::multiple_choice(std::int64_t step, const MultipleChoiceResult& result) {
  const auto share = [&](std::int64_t right) {
    return static_cast<double>(right) / static_cast<double>(result.questions);
  };
  event(Json{{"event", "multiple_choice"},
             {"step", step},
             {"questions", result.questions},
             {"by_sum", share(result.by_sum)},
             {"by_token", share(result.by_token)},
             {"by_byte", share(result.by_byte)}}
            .dump());
  text(to_text(result));
}

void RunLog::measurement(const StepAnalysis& analysis, std::size_t steps_kept, double measuring_share) {
  const auto parts = [](const IdleParts& it) {
    return Json{{"schedule_ms", it.schedule},
                {"imbalance_ms", it.imbalance},
                {"jitter_ms", it.jitter},
                {"communication_ms", it.communication}};
  };
  Json ranks = Json::array();
  for (std::size_t r = 0; r < analysis.ranks.size(); ++r) {
    const RankAnalysis& it = analysis.ranks[r];
    Json rank = {{"rank", r}, {"busy_ms", it.busy}, {"waiting_ms", it.waiting}, {"idle_ms", it.idle}};
    rank.update(parts(it.parts));
    rank.update(Json{{"reduction_ms", it.reduction}, {"update_ms", it.update}, {"post_flush_ms", it.post_flush}});
    ranks.push_back(std::move(rank));
  }
  Json json = {{"event", "measurement"},
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
  json["ranks"] = std::move(ranks);
  event(json.dump());
}

void RunLog::end(const std::string& parameter_hash, double final_loss, std::optional<std::int64_t> redone_steps) {
  Json json = {{"event", "end"}, {"parameter_hash", parameter_hash}, {"final_loss", final_loss}};
  if (parameter_hash.empty()) json["parameter_hash"] = nullptr;
  if (redone_steps) {
    json["redone_steps"] = *redone_steps;
    text(format("%lld optimistic steps were taken back and done again", static_cast<long long>(*redone_steps)));
  }
  event(json.dump());
  if (parameter_hash.empty()) return;
  text(format("parameter_hash %s  final loss %.6f", parameter_hash.c_str(), final_loss));
}

}  // namespace train_gpt
