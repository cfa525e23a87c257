#include "commands/commands.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands/cli/wording.h"
#include "commands/run/checkpoint_copies.h"
#include "commands/run/log_events.h"
#include "commands/run/session.h"
#include "commands/run/setup.h"
#include "commands/search_watch.h"
#include "pipeline/draw/markup.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/schedule/csv.h"
#include "pipeline/simulate/check_schedule.h"

namespace train_gpt {
namespace {

// p: --stages, else the schedule file's, else the number of ranks that a profile was measured on.
int pipeline_ranks(const Options& options, const std::optional<Profile>& profile) {
  if (options.costs.stages > 0) return options.costs.stages;
  if (!options.pipeline.schedule_file.empty()) return read_schedule_csv(options.pipeline.schedule_file).ranks;
  if (profile) return static_cast<int>(profile->ranks.size());
  throw std::invalid_argument("plan needs --stages p, the number of ranks of one pipeline (or --profile FILE)");
}

Precision plan_precision(const Options& options) {
  const bool cuda = options.device.device == DeviceKind::cuda;
  return options.device.precision.value_or(cuda ? Precision::bf16 : Precision::fp32);
}

CostModel plan_costs(const Options& options, const std::optional<Profile>& profile, const ModelConfig& model,
                     const BatchShape& batch, int p) {
  if (profile) {
    const std::string& path = options.pipeline.profile;
    check_profile(*profile, path, profile_sizes(model, batch.rows, batch.seq_len, profile->sizes.precision));
    return cost_model(*profile, model, p, "of " + path);
  }
  if (options.costs.given) return given_cost_model(options.costs.costs, model, batch.seq_len, p);
  return estimated_cost_model(model, batch.seq_len, p);
}

PlanRequest base_request(const Options& options, const ModelConfig& model, const std::optional<Profile>& profile,
                         const std::optional<Schedule>& schedule) {
  PlanRequest base;
  base.model = model;
  base.batch = batch_shape(options, schedule);
  base.precision = profile ? profile->sizes.precision : plan_precision(options);
  base.optimizer = options.optimizer.optimizer;
  base.caches = options.run.sample_every > 0 && options.device.device != DeviceKind::cuda;
  base.spare_parameters = options.optimizer.optimizer_step == OptimizerStep::optimistic;
  base.zero = options.batch.zero;
  if (schedule) base.schedule = *schedule;
  base.gradient_buffers = gradient_buffers(options, base);
  base.error_feedback = options.optimizer.delay_correction;
  base.head_chunks = planned_head_chunks(options.device.device);
  base.workspace_bytes = planned_workspace_bytes(options.device.device, base.precision,
                                                 std::max(1, options.run.threads), model, base.batch);
  return base;
}

// The same rows per step as fewer, larger micro-batches, or more and smaller ones.
struct Split {
  std::int64_t rows = 1;
  int micro_batches = 1;
};
std::vector<Split> splits(const BatchShape& batch) {
  std::vector<Split> all;
  const std::int64_t rows = batch.rows * batch.micro_batches;
  for (const std::int64_t factor : {-4, -2, 1, 2, 4}) {
    const std::int64_t b = factor > 0 ? batch.rows * factor : batch.rows / -factor;
    if (b < 1 || rows % b != 0 || (factor < 0 && batch.rows % -factor != 0)) continue;
    all.push_back({b, static_cast<int>(rows / b)});
  }
  return all;
}

void scale(UnitCosts& costs, double factor) {
  for (std::vector<double>* pass : {&costs.forward, &costs.input, &costs.weight}) {
    for (double& ms : *pass) ms *= factor;
  }
  for (double* ms : {&costs.streamed_head.forward, &costs.streamed_head.input, &costs.streamed_head.weight})
    *ms *= factor;
}

// --schedule auto also compares micro-batch sizes, with costs in proportion to the rows.
std::string split_table(const ChoiceRequest& request) {
  std::string table = "the same rows per step in other micro-batches (costs in proportion to rows):\n";
  for (const Split& split : splits(request.base.batch)) {
    ChoiceRequest other = request;
    other.search_beyond_names = false;
    other.base.batch.rows = split.rows;
    other.base.batch.micro_batches = split.micro_batches;
    const double factor = static_cast<double>(split.rows) / static_cast<double>(request.base.batch.rows);
    scale(other.costs.units, factor);
    std::array<char, 200> text{};
    const Choice choice = choose(other);
    std::snprintf(text.data(), text.size(), "  b %4lld  m %4d  %10.1f ms  bubble %5.1f%%  %10s%s\n",
                  static_cast<long long>(split.rows), split.micro_batches, choice.predicted.makespan,
                  100 * choice.predicted.bubble, format_bytes(largest_rank(choice.plan)).c_str(),
                  choice.fits ? "" : "  does not fit");
    table += text.data();
  }
  return table;
}

std::string prediction(const Choice& choice, const CostModel& costs, bool measured) {
  const PlanRequest& request = choice.plan.request;
  const Simulation& predicted = choice.predicted;
  std::array<char, 300> text{};
  std::snprintf(text.data(), text.size(), "schedule %s, p = %d, v = %d, m = %d: bubble %.2f%%, span bubble %.2f%%\n",
                request.schedule.name.c_str(), request.schedule.ranks, request.schedule.chunks,
                request.batch.micro_batches, 100 * predicted.bubble, 100 * predicted.bubble_span);
  std::string lines = text.data();
  std::snprintf(text.data(), text.size(), "predicted %.1f ms per step", predicted.makespan);
  lines += text.data() + beside_uniform_cut(predicted.makespan, choice.uniform_makespan);
  if (measured || costs.given) {
    std::snprintf(text.data(), text.size(), "; %.0f tokens/s",
                  static_cast<double>(request.batch.step_tokens()) / predicted.makespan * 1000);
    lines += text.data();
  } else {
    lines +=
        "\nThese ms only compare: nothing was measured, F of an average rank is set to 1 ms. `train_gpt profile` "
        "measures.";
  }
  return lines + "\n" + kPlanWords + "\n";
}

// The copies that `train` makes, as far as they are known without the hosts' memory. Returns what people should know.
std::string plan_copies(const Options& options, Plan& plan) {
  if (options.device.device == DeviceKind::timed) return "";
  const bool in_limit = options.device.device != DeviceKind::cuda;  // those of GPUs are in their host's memory
  if (!copies_fit(plan, in_limit ? options.pipeline.memory_limit : 0)) return without_copies(plan);
  add_copies(plan);
  return "";
}

}  // namespace

int run_plan(const Options& options) {
  if (options.layouts.ranks > 0) return run_plan_ranks(options);
  std::optional<Profile> profile;
  if (!options.pipeline.profile.empty()) profile = load_profile(options.pipeline.profile);
  const ModelConfig model = model_config(options);
  const int p = pipeline_ranks(options, profile);
  const std::optional<Schedule> schedule = named_schedule(options, p);
  if (schedule) {
    for (const std::string& notice : check_schedule(*schedule).notices) {
      std::fprintf(stderr, "note: %s\n", printable(notice).c_str());
    }
  }
  const PlanRequest base = base_request(options, model, profile, schedule);
  const CostModel costs = plan_costs(options, profile, model, base.batch, p);
  ChoiceRequest request = choice_request(options, base, schedule, p, costs);
  SearchWatch watch(options.pipeline.search_seconds);
  request.search_progress = watch.progress();
  Choice choice = choose(request);
  check_memory_limit(choice.plan, request, options.pipeline.memory_limit);
  const std::string notice = plan_copies(options, choice.plan);
  if (options.plan_json) {
    std::printf("%s\n", line_of(plan_event(choice.plan, choice.predicted, choice.uniform_makespan)).c_str());
    return 0;
  }
  std::printf("model: %s parameters\n", grouped_digits(parameter_count(model)).c_str());
  if (!choice.schedule_reason.empty()) std::printf("%s\n", choice.schedule_reason.c_str());
  std::printf("%s\n\n%s\n%s", partition_table(choice, costs).c_str(), memory_table(choice.plan).c_str(),
              prediction(choice, costs, profile.has_value()).c_str());
  if (!notice.empty()) std::printf("note: %s\n", notice.c_str());
  if (options.device.device == DeviceKind::cuda) std::printf("%s\n", multiprocessor_line(choice.plan).c_str());
  if (!schedule && !costs.given) std::printf("\n%s", split_table(request).c_str());
  return 0;
}

}  // namespace train_gpt
