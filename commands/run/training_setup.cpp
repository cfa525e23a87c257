// From inputs and plan to a rank that is ready to step: memory, parameters, hooks, prediction.
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "commands/run/action_time.h"
#include "commands/run/estimate.h"
#include "commands/run/launch.h"
#include "commands/run/setup.h"
#include "commands/run/training_run.h"
#include "model/flops.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/schedule/flushless.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {
namespace {

// Scales operation counts by the speed of matrix products here. Returns the milliseconds of a micro-batch.
double scale_to_speed(StageCosts& costs, const PlanRequest& request, double flops_per_second) {
  const auto flops =
      static_cast<double>(flops_per_token(request.model, request.batch.seq_len) * request.batch.micro_batch_tokens());
  double sum = 0;
  for (const auto* kind : {&costs.forward, &costs.input, &costs.weight}) sum += std::reduce(kind->begin(), kind->end());
  if (sum <= 0) return 0;
  const double factor = flops / flops_per_second * 1000 / sum;
  for (auto* kind : {&costs.forward, &costs.input, &costs.weight, &costs.fused}) {
    for (double& ms : *kind) ms *= factor;
  }
  return sum * factor;
}

// The costs of a single rank decide nothing. Those of a micro-batch that takes longer than this are not measured; below
// it measuring is quick, and small products are far from the speed of large ones.
constexpr double kNotMeasuredFromMs = 100;

}  // namespace

TrainingRun::TrainingRun(Session& s, const Options& o, RunInputs& i, const RunPlan& d, double begun)
    : session(s), options(o), inputs(i), decided(d), plan(d.plan()), stopping(o.run, s.is_first(), begun) {
  session.together([&] {
    if (inputs.folder != nullptr) {
      for (std::string& note : inputs.folder->begin(inputs.resumed)) inputs.notices.push_back(std::move(note));
    }
    const bool goes_on = inputs.folder != nullptr && inputs.folder->continues();
    log = std::make_unique<RunLog>(options.run.output, session.is_first(), /*append=*/goes_on,
                                   Screen{.log_every = options.run.log_every, .quiet = options.run.quiet});
    state = std::make_unique<StateFile>(options.run.output, session.world().rank(), session.world().size());
  });
  if (stashes_weights(plan.request.schedule.name)) inputs.manifest.set_stages(plan.request.partition);
  groups = make_groups(session.world(), inputs.layout, plan);
  session.together(
      [&] { trainer = std::make_unique<Trainer>(session.device(), groups, plan, optimizer_settings(options)); });
  const auto& ranks = plan.ranks;
  if (std::any_of(ranks.begin(), ranks.end(), [](const RankPlan& rank) { return rank.copy_bytes > 0; })) {
    session.together([&] {
      copy = std::make_unique<StateCopy>(session.device(), *trainer, inputs.model);
      background = std::make_unique<BackgroundSaving>(session.world(), *copy, inputs.model);
    });
  }
  trainer->open();
  install_hooks();
  if (trains()) log->start(start_facts(), options);
  if (inputs.folder != nullptr) log->text("run " + inputs.folder->run() + " in " + inputs.folder->path());
  log->text(session.resources());
  log->text(model_line(inputs.model, plan.request.batch));
  if (!decided.notice.empty()) inputs.notices.push_back(decided.notice);
  for (const std::string& notice : inputs.notices) log->essential("note: " + notice);
  if (!decided.choice.schedule_reason.empty()) log->text(decided.choice.schedule_reason);
  log->text(partition_table(decided.choice, decided.unit_costs));
  log->text(memory_table(plan));
  if (session.on_gpus()) log->text(multiprocessor_line(plan));
  if (computes()) fill_parameters();
  if (trains() && inputs.val_data) {
    session.together([&] {
      best.emplace(options.run.output,
                   validation_measure(*inputs.val_data, inputs.val_batches, plan.request.batch.step_rows()));
    });
    best->find(session.world());
  }
  if (trains()) predict();
}

RunStart TrainingRun::start_facts() const {
  RunStart start{.device = session.resources(),
                 .model = model_line(inputs.model, plan.request.batch),
                 .first_step = inputs.resumed.manifest.step,
                 .tokens_per_step = plan.request.batch.step_tokens()};
  if (inputs.train_data) start.training_tokens = inputs.train_data->window_count() * inputs.train_data->seq_len();
  if (inputs.val_data) start.validation_tokens = inputs.val_data->token_count();
  return start;
}

void TrainingRun::fill_parameters() {
  session.together([&] {
    if (!inputs.resumed.folder.empty()) {
      load_checkpoint(*trainer, inputs.resumed);
    } else if (options.model.init_file.empty()) {
      trainer->initialise(options.data.seed);
    } else {
      trainer->load(ModelFile(options.model.init_file));
    }
  });
  const std::string source = inputs.resumed.folder.empty() ? options.model.init_file : inputs.resumed.folder;
  if (!source.empty()) require_finite(session, *trainer, source);
  if (inputs.resumed.folder.empty()) return;
  const std::string hash = trainer->parameter_hash();
  session.together([&] {
    if (hash == inputs.resumed.manifest.parameter_hash) return;
    throw std::runtime_error(inputs.resumed.folder + ": the parameters that were loaded have the hash " + hash +
                             ", its manifest says " + inputs.resumed.manifest.parameter_hash);
  });
  log->resumed(inputs.resumed.manifest.step, inputs.resumed.folder);
}

void TrainingRun::install_hooks() {
  watchdog = std::make_unique<Watchdog>(*state, options.run.output, session.world().rank(), session.world().size(),
                                        options.run.stall_timeout, launch_from_environment().launched,
                                        [this] { return trainer->doing(); });
  trainer->set_hooks([this] { watchdog->while_computing(); }, [this] { watchdog->while_waiting(); });
  trainer->set_max_skipped(options.run.max_skipped);
  trainer->set_votes([this] {
    Votes votes = stopping.votes();
    votes[kSavingIsReady] = background && background->ready() ? 1 : 0;
    votes[kFolderIsLost] = session.is_first() && inputs.folder != nullptr && inputs.folder->is_lost() ? 1 : 0;
    return votes;
  });
  ActionDelays delays(session.delays(), session.world().rank());
  const bool timed = session.is_timed();
  if (!timed && !delays.any()) return;
  std::vector<double> durations;
  if (timed) durations = action_durations(plan.step_schedule(), decided.choice.costs, groups.rank());
  trainer->executor().set_extra_work([this, delays, durations](std::size_t position) mutable {
    const double ms = delays.next() + (durations.empty() ? 0 : durations[position]);
    spend(ms, [this] {
      groups.progress();
      watchdog->while_computing();
    });
  });
}

// Costs of the stages (measured in place, unless a profile or --cost-* give them) and the simulation with them.
void TrainingRun::predict() {
  planned = decided.choice.costs;
  const bool one_rank = plan.ranks.size() == 1;
  const bool measures = plan.request.computes && options.pipeline.profile.empty();
  const bool is_slow = measures && one_rank && session.product_flops() &&
                       scale_to_speed(planned, plan.request, *session.product_flops()) > kNotMeasuredFromMs;
  if (measures && !is_slow) {
    const StageCosts measured = trainer->measure_stages();
    planned.forward = measured.forward;
    planned.input = measured.input;
    planned.weight = measured.weight;
  }
  predicted = simulate_step(decided.schedule(), planned);
  // The uniform cut was compared by the costs of single units; the measured costs of stages scale both alike.
  std::optional<double> uniform = decided.choice.uniform_makespan;
  if (uniform && decided.choice.predicted.makespan > 0)
    *uniform *= predicted.makespan / decided.choice.predicted.makespan;
  log->plan(plan, predicted, uniform);
  char text[200];
  std::snprintf(text, sizeof text, "schedule %s: predicted %.1f ms %s, bubble %.1f%% (span bubble %.1f%%)",
                decided.schedule().name.c_str(), predicted.makespan,
                flushless() ? "per step of a full pipe" : "from first to last action", 100 * predicted.bubble,
                100 * predicted.bubble_span);
  log->text(text + beside_uniform_cut(predicted.makespan, uniform) + "\n" + kPlanWords);
  const EstimateRequest estimate{
      .model = inputs.model,
      .seq_len = plan.request.batch.seq_len,
      .steps = options.run.steps - inputs.resumed.manifest.step,
      .step_ms = predicted.makespan,
      .model_is_open = computes() && options.model.init_file.empty() && inputs.resumed.folder.empty()};
  for (const std::string& line : estimate_lines(estimate)) log->text(line);
}

}  // namespace train_gpt
