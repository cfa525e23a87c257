#include "commands/run/setup.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "commands/cli/wording.h"
#include "commands/run/checkpoints.h"
#include "commands/run/told.h"
#include "commands/run/what_fits.h"
#include "data/manifest.h"
#include "kernels/cuda/multiprocessors.h"
#include "model/safetensors.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/csv.h"
#include "pipeline/schedule/flushless.h"
#include "pipeline/simulate/check_schedule.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {
namespace {

// The vocabulary in the token file's manifest. Plans, profiles and the timed device need no tokens: the default file
// may be missing.
std::optional<std::int64_t> vocab_of_data(const Options& options) {
  const std::string& files = options.data.train_data;
  if (files == kDemoTrainData && !std::filesystem::exists(files)) return std::nullopt;
  return vocab_of(files, "--train-data");
}

}  // namespace

std::string init_model_file(const Options& options) {
  namespace fs = std::filesystem;
  const fs::path given = options.model.init_file;
  if (given == kLatestRun && !fs::exists(given)) {
    throw std::invalid_argument(
        std::string("there is no ") + kLatestRun +
        ", the newest run, here: name a model with --init, such as model.bin of a run, or the folder of a run or "
        "checkpoint");
  }
  if (!fs::exists(given)) {
    throw std::invalid_argument("--init " + given.string() +
                                ": there is no such file or folder; give a model file, or the folder of a run, of a "
                                "checkpoint, or of Hugging Face");
  }
  if (!fs::is_directory(given)) return given;
  if (fs::exists(given / "model.bin")) return given / "model.bin";
  if (has_safetensors(given)) return given;
  const fs::path newest = newest_checkpoint(given);
  if (!newest.empty() && fs::exists(newest / "model.bin")) return newest / "model.bin";
  throw std::invalid_argument(
      "--init " + given.string() +
      ": this folder has neither model.bin, nor model.safetensors, nor a complete checkpoint (checkpoints/step-N with "
      "manifest.json and model.bin); give a model file, or the folder of a run, of a checkpoint, or of Hugging Face");
}

std::string agreed_init_file(Session& session, const Options& options) {
  std::string found;
  session.together([&] {
    if (session.is_first() && !options.model.init_file.empty()) found = init_model_file(options);
  });
  return told_by_first(session.world(), std::move(found));
}

ModelConfig model_config(const Options& options) {
  const ModelOptions& wanted = options.model;
  if (!wanted.init_file.empty()) return ModelFile(init_model_file(options)).config();
  ModelConfig model = preset(wanted.preset);
  if (wanted.layers) {
    model.layers = *wanted.layers;
    model.heads = *wanted.heads;
    model.hidden = *wanted.hidden;
  }
  model.tied = wanted.tied;
  const auto from_manifest = wanted.vocab ? wanted.vocab : vocab_of_data(options);
  if (from_manifest) model.vocab = *from_manifest;
  if (wanted.max_seq_len) model.max_seq_len = *wanted.max_seq_len;
  check(model);
  return model;
}

void check_positions(const Options& options, const ModelConfig& model) {
  if (options.batch.seq_len <= model.max_seq_len) return;
  throw std::invalid_argument("--seq-len " + std::to_string(options.batch.seq_len) + " is longer than the model's " +
                              std::to_string(model.max_seq_len) + " positions: give at most that" +
                              (options.model.init_file.empty() ? ", or raise --max-seq-len" : ""));
}

std::optional<Schedule> named_schedule(const Options& options, int p) {
  if (!options.pipeline.schedule_file.empty()) {
    Schedule schedule = read_schedule_csv(options.pipeline.schedule_file);
    if (schedule.ranks != p) {
      throw std::invalid_argument(
          "--schedule-file " + options.pipeline.schedule_file + " is for " + counted(schedule.ranks, "rank") +
          ", but a pipeline here has " + std::to_string(p) + ": start " +
          counted(std::int64_t{schedule.ranks} * options.batch.data_parallel, "rank") + " with mpirun -n");
    }
    if (options.batch.micro_batches_given && options.batch.micro_batches != schedule.micro_batches) {
      throw std::invalid_argument("--micro-batches " + std::to_string(options.batch.micro_batches) + ", but " +
                                  options.pipeline.schedule_file + " has " + std::to_string(schedule.micro_batches) +
                                  ": leave the option out");
    }
    return schedule;
  }
  if (options.pipeline.schedule() == "auto") return std::nullopt;
  if (is_flushless(options.pipeline.schedule())) {
    return make_schedule(FlushlessRequest{.name = options.pipeline.schedule(),
                                          .ranks = p,
                                          .micro_batches = options.batch.micro_batches,
                                          .warmup_factor = options.pipeline.warmup_factor,
                                          .steps = kPlannedSteps});
  }
  return make_schedule({.name = options.pipeline.schedule(),
                        .ranks = p,
                        .micro_batches = options.batch.micro_batches,
                        .chunks = options.pipeline.chunks,
                        .group_size = options.pipeline.group_size});
}

BatchShape batch_shape(const Options& options, const std::optional<Schedule>& schedule) {
  const bool two_directions = schedule && schedule->placement.kind == Placement::Kind::bidirectional;
  return {.rows = options.batch.micro_batch_size,
          .seq_len = options.batch.seq_len,
          .micro_batches = schedule ? micro_batches_of_step(*schedule) : options.batch.micro_batches,
          .replicas = options.batch.data_parallel,
          .groups = options.batch.accumulation_groups.value_or(options.batch.data_parallel * (two_directions ? 2 : 1))};
}

ChoiceRequest choice_request(const Options& options, const PlanRequest& base, std::optional<Schedule> schedule, int p,
                             CostModel costs) {
  ChoiceRequest request;
  request.base = base;
  request.ranks = p;
  request.costs = std::move(costs);
  request.schedule = std::move(schedule);
  request.chunks = options.pipeline.auto_chunks;
  const PartitionOption& partition = options.pipeline.partition;
  request.cut = partition.kind == PartitionOption::Kind::list      ? ChoiceRequest::Cut::list
                : partition.kind == PartitionOption::Kind::uniform ? ChoiceRequest::Cut::uniform
                                                                   : ChoiceRequest::Cut::measured;
  request.partition = partition.units;
  if (p == 1) request.head = HeadForm::streamed;  // no bubble to fill: only its memory counts
  const RecomputeOption& recompute = options.pipeline.recompute;
  request.recompute = recompute.kind == RecomputeOption::Kind::list        ? ChoiceRequest::Recompute::list
                      : recompute.kind == RecomputeOption::Kind::automatic ? ChoiceRequest::Recompute::automatic
                                                                           : ChoiceRequest::Recompute::none;
  request.recompute_counts = recompute.units;
  request.memory_limit = options.pipeline.memory_limit;
  request.memory_limits = options.pipeline.memory_limits;
  if (const std::size_t limits = request.memory_limits.size(); limits > 0 && limits != static_cast<std::size_t>(p)) {
    throw std::invalid_argument("--memory-limit: " + std::to_string(limits) +
                                " values; give 1 or one for each rank of the pipeline (" + std::to_string(p) + ")");
  }
  return request;
}

constexpr const char* kNeedLess =
    ". Take a schedule that keeps fewer activations (1f1b instead of gpipe), --recompute auto, more ranks, or a "
    "smaller --micro-batch-size";

void check_memory_limit(const Plan& plan, const ChoiceRequest& request, std::int64_t limit) {
  if (limit <= 0) return;
  const bool differ = !request.memory_limits.empty();
  for (const RankPlan& rank : plan.ranks) {
    if (differ) limit = request.limit_of(static_cast<std::size_t>(rank.rank));
    if (rank.total_bytes() <= limit) continue;
    throw std::invalid_argument("--memory-limit " + std::to_string(limit) + " (" + format_bytes(limit) + "): rank " +
                                std::to_string(rank.rank) + " needs " + std::to_string(rank.total_bytes()) +
                                " bytes (" + format_bytes(rank.total_bytes()) + ")" + what_fits(request));
  }
}

void check_host_memory(const Plan& plan, const std::vector<int>& ranks, std::int64_t bytes) {
  if (bytes <= 0) return;
  std::int64_t needed = 0;
  for (const int rank : ranks) needed += plan.ranks[static_cast<std::size_t>(rank) % plan.ranks.size()].total_bytes();
  if (needed <= bytes) return;
  throw std::invalid_argument((ranks.size() == 1 ? "the rank of one host needs "
                                                 : "the " + std::to_string(ranks.size()) + " ranks of one host need ") +
                              format_bytes(needed) + ", and that host has " + format_bytes(bytes) + kNeedLess);
}

void check_gpu_memory(const Plan& plan, std::int64_t bytes) {
  for (const RankPlan& rank : plan.ranks) {
    if (rank.total_bytes() <= bytes) continue;
    throw std::invalid_argument("rank " + std::to_string(rank.rank) + " needs " + format_bytes(rank.total_bytes()) +
                                ", and its GPU has " + format_bytes(bytes) + " for it" + kNeedLess);
  }
}

std::string multiprocessor_line(const Plan& plan) {
  std::ptrdiff_t most = 0;
  for (const RankPlan& rank : plan.ranks) {
    most = std::max(most, std::count_if(rank.rings.begin(), rank.rings.end(),
                                        [](const Ring& ring) { return ring.kind != Ring::Kind::hand_over; }));
  }
  const std::ptrdiff_t held = most * cuda::kChannelCtas;
  return "multiprocessors: up to " + std::to_string(most) + " channels end on a rank and hold up to " +
         std::to_string(held) + " while their peers are late; matrix products leave " +
         std::to_string(cuda::kLeftToMessages) + " to them" +
         (held > cuda::kLeftToMessages ? ", and may take up to twice as long where more are held" : "");
}

OptimizerSettings optimizer_settings(const Options& options) {
  const OptimizerOptions& wanted = options.optimizer;
  OptimizerSettings settings;
  settings.learning_rate = {.shape = wanted.lr_schedule,
                            .peak = wanted.learning_rate,
                            .steps = options.run.steps,
                            .warmup_steps = wanted.warmup_steps,
                            .min_lr_fraction = wanted.min_lr_fraction};
  check(settings.learning_rate);
  settings.adamw = {.beta1 = static_cast<float>(wanted.beta1),
                    .beta2 = static_cast<float>(wanted.beta2),
                    .eps = static_cast<float>(wanted.eps),
                    .weight_decay = static_cast<float>(wanted.weight_decay)};
  settings.muon = {.weight_decay = settings.adamw.weight_decay, .scale = wanted.muon_scale};
  settings.grad_clip = wanted.grad_clip;
  return settings;
}

int gradient_buffers(const Options& options, const PlanRequest& request) {
  if (stashes_weights(request.schedule.name)) return 1;
  const bool waits = options.optimizer.grad_clip > 0 || request.batch.replicas > 1 || options.run.max_skipped > 0;
  return waits || (request.model.tied && request.schedule.ranks > 1) ? 2 : 1;
}

Costs given_costs(const Options& options, int ranks) {
  Costs costs = options.costs.costs;
  if (options.costs.cluster_given) {
    set_links(costs, options.costs.cluster, {ranks, options.batch.data_parallel, options.batch.rank_order});
  }
  return costs;
}

std::vector<LinkCost> replica_links(const Options& options, int ranks) {
  std::vector<LinkCost> links;
  if (!options.costs.cluster_given || options.batch.data_parallel == 1) return links;
  const Grid grid{ranks, options.batch.data_parallel, options.batch.rank_order};
  for (int r = 0; r < ranks; ++r) links.push_back(replica_link(options.costs.cluster, grid, r));
  return links;
}

PlanRequest plan_request(const Options& options, const ModelConfig& model, const std::optional<Schedule>& schedule,
                         const Device& device) {
  PlanRequest request;
  request.model = model;
  request.batch = batch_shape(options, schedule);
  if (schedule) request.schedule = *schedule;
  if (stashes_weights(request.schedule.name) && model.tied) {
    throw std::invalid_argument("--schedule pipedream updates after every backward, and the embedding of " +
                                (options.model.init_file.empty() ? "this model" : options.model.init_file) +
                                " is tied to its head: take 2bw");
  }
  request.precision = device.precision();
  request.optimizer = options.optimizer.optimizer;
  request.caches = options.run.sample_every > 0 && device.rows_stand_alone();
  request.spare_parameters = options.optimizer.optimizer_step == OptimizerStep::optimistic;
  request.zero = options.batch.zero;
  request.gradient_buffers = gradient_buffers(options, request);
  request.error_feedback = options.optimizer.delay_correction;
  request.reduction_ms = options.costs.reduction;
  request.head_chunks = device.head_chunks();
  request.workspace_bytes = device.workspace_bytes(request.batch.rows, request.batch.seq_len, model.hidden, model.heads,
                                                   model.padded_vocab());
  return request;
}

Plan smallest_plan(const Options& options, const ModelConfig& model, int p, const Device& device) {
  const int ranks = std::min(p, unit_count(model));
  const Schedule schedule = make_schedule(ScheduleRequest{.name = "gpipe", .ranks = ranks, .micro_batches = 1});
  PlanRequest request = plan_request(options, model, schedule, device);
  request.batch.groups = request.batch.replicas;
  request.training = options.command == Command::train;
  request.partition = uniform_partition(model, ranks);
  if (options.pipeline.recompute.kind != RecomputeOption::Kind::none) {
    request.recompute.assign(static_cast<std::size_t>(unit_count(model)), true);
  }
  return make_plan(request);
}

void require_finite(Session& session, Trainer& trainer, const std::string& source) {
  const std::string tensor = trainer.non_finite_parameter();
  session.together([&] {
    if (tensor.empty()) return;
    throw std::invalid_argument(source + ": parameter " + tensor +
                                " holds a value that is not finite; take an earlier checkpoint");
  });
}

const char* const kPlanWords =
    "bubble: idle share of ranks x time from the first action to the last; span bubble: the same, each rank from its "
    "own\n"
    "first action to its own last. F forward, I and W the two halves of the backward (gradients of inputs, of "
    "weights);\n"
    "F..I, F..W, I..W: memory held from the one to the other, with the number of buffers (slots) in brackets";

std::string model_line(const ModelConfig& model, const BatchShape& batch) {
  return "model: " + counted(model.layers, "layer") + ", " + counted(model.heads, "head") + ", hidden " +
         std::to_string(model.hidden) + ", vocabulary " + std::to_string(model.vocab) +
         (model.tied ? ", tied" : ", untied") + ": " + grouped_digits(parameter_count(model)) +
         " parameters; step: " + std::to_string(batch.replicas) + " x " + std::to_string(batch.micro_batches) +
         (batch.micro_batches == 1 ? " micro-batch of " : " micro-batches of ") + counted(batch.rows, "row") + " of " +
         std::to_string(batch.seq_len) + " = " + counted(batch.step_tokens(), "token") +
         (batch.groups > 1 ? "; gradients summed in groups: " + order_of_sums(batch) : "");
}

}  // namespace train_gpt
