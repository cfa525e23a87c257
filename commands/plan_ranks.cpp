// `train_gpt plan --ranks N`: pipeline, replicas, sharding, or several of them at once? (pipeline/planner/layouts.h)
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands/cli/wording.h"
#include "commands/commands.h"
#include "commands/run/session.h"
#include "commands/run/setup.h"
#include "pipeline/draw/table.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/planner/layouts.h"
#include "pipeline/train/state_file.h"

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kRows = 10;
constexpr std::int64_t kRowsPerRank = 8;  // of a step, where --global-batch-size is not given

constexpr const char* kWords =
    "A line for each d, p and ZeRO: the best that was found of its kind. idle: share of ranks x step; exposed: of the\n"
    "step, what reductions and gathers hold it up; memory: of the rank that needs most, by its exact plan; sent: in a\n"
    "step, by the rank that sends most; recomputed: units of the model.\n";

constexpr const char* kRest =
    "What this rests on: times of units in proportion to the rows of a micro-batch; links that reach the speed given,\n"
    "whoever else uses them; no time for the update, for the sum of a tied embedding's ends and for waiting for slow\n"
    "ranks. Memory is exact, times are a simulation: measure the first few.\n";

const char* to_word(RankOrder order) { return order == RankOrder::pipeline ? "pipeline" : "replicas"; }

LayoutRequest layout_request(const Options& options, const ModelConfig& model, int ranks) {
  const LayoutOptions& wanted = options.layouts;
  LayoutRequest request;
  request.base.model = model;
  request.base.batch.seq_len = options.batch.seq_len;
  request.base.optimizer = options.optimizer.optimizer;
  request.base.head_chunks = planned_head_chunks(options.device.device);
  const bool cuda = options.device.device == DeviceKind::cuda;
  request.base.precision = options.device.precision.value_or(cuda ? Precision::bf16 : Precision::fp32);
  request.ranks = ranks;
  request.rows = options.batch.global_rows > 0 ? options.batch.global_rows : kRowsPerRank * ranks;
  request.memory_limit = options.pipeline.memory_limit;
  if (!options.pipeline.profile.empty()) {
    const Profile profile = load_profile(options.pipeline.profile);
    const ProfileSizes& sizes = profile.sizes;
    check_profile(profile, options.pipeline.profile,
                  profile_sizes(model, sizes.micro_batch_size, options.batch.seq_len, sizes.precision));
    request.base.precision = sizes.precision;
    request.least_rows = sizes.micro_batch_size;
    request.row = scaled(unit_costs(profile, model), 1.0 / static_cast<double>(sizes.micro_batch_size));
  } else {
    request.row = costs_at_speed(model, options.batch.seq_len, wanted.flops_per_second);
  }
  const int threads = std::max(1, options.run.threads);
  request.workspace_bytes = [&options, &model, threads, precision = request.base.precision](const BatchShape& batch) {
    return planned_workspace_bytes(options.device.device, precision, threads, model, batch);
  };
  HeldLayout& held = request.held;
  held.chunks = options.pipeline.auto_chunks;
  held.may_recompute = !wanted.holds_recompute || options.pipeline.recompute.kind != RecomputeOption::Kind::none;
  if (options.costs.stages > 0) held.ranks = options.costs.stages;
  if (wanted.holds_replicas) held.replicas = options.batch.data_parallel;
  if (wanted.holds_zero) held.zero = options.batch.zero;
  if (wanted.holds_rows) held.rows = options.batch.micro_batch_size;
  if (wanted.holds_order) held.order = options.batch.rank_order;
  if (wanted.holds_schedule && options.pipeline.schedule() != "auto") held.schedule = options.pipeline.schedule();
  return request;
}

// Those that are given, else what a profile says of messages between its ranks.
Cluster links_of(const Options& options) {
  if (options.costs.cluster_given || options.pipeline.profile.empty()) return options.costs.cluster;
  const Profile profile = load_profile(options.pipeline.profile);
  if (profile.messages.empty()) {
    throw std::invalid_argument("--profile " + options.pipeline.profile +
                                " was measured on one rank and knows no links: give --link-inside (and, for several "
                                "hosts, --ranks-per-host and --link-between)");
  }
  return {.inside = {message_latency(profile), message_bandwidth(profile)}};
}

std::string link_words(const LinkCost& link) {
  return (link.bandwidth > 0 ? with_digits(link.bandwidth, 4) + " GB/s" : std::string("endless bandwidth")) +
         (link.latency > 0 ? " and " + with_digits(link.latency, 4) + " ms" : "");
}

std::string header(const Options& options, const LayoutRequest& request, const Cluster& cluster) {
  const bool hosts = cluster.ranks_per_host > 0 && cluster.ranks_per_host < request.ranks;
  std::string text = "model: " + grouped_digits(parameter_count(request.base.model)) + " parameters, " +
                     (request.base.precision == Precision::bf16 ? "bf16" : "fp32") +
                     "; a step: " + counted(request.rows, "row") + " of " +
                     counted(request.base.batch.seq_len, "token");
  if (options.batch.global_rows == 0) text += " (8 per rank; --global-batch-size says another number)";
  text += "\n" + counted(request.ranks, "rank") +
          (hosts ? ", " + std::to_string(cluster.ranks_per_host) + " to a host" : " on one host") +
          "; links of a rank: " + link_words(cluster.inside) +
          (hosts ? " inside a host, " + link_words(cluster.between) + " between hosts" : "");
  text += "; units: " + (options.pipeline.profile.empty()
                             ? with_digits(options.layouts.flops_per_second / 1e12, 4) + " TFLOP/s of a rank, as given"
                             : "of " + options.pipeline.profile);
  if (request.memory_limit > 0) text += "; memory limit " + format_bytes(request.memory_limit);
  return text + "\n\n";
}

double tokens_per_second(const LayoutRequest& request, const PlannedLayout& it) {
  return static_cast<double>(request.rows * request.base.batch.seq_len) / it.step_ms * 1000;
}

std::string table(const LayoutRequest& request, const std::vector<PlannedLayout>& best) {
  std::array<char, 240> text{};
  std::snprintf(text.data(), text.size(), "%2s %5s %4s %4s  %-15s %3s %5s %6s %-9s %10s %12s %6s %8s %10s %10s %10s\n",
                "", "d", "p", "ZeRO", "schedule", "v", "b", "m", "neighbour", "ms/step", "tokens/s", "idle", "exposed",
                "memory", "sent", "recomputed");
  std::string lines = text.data();
  for (std::size_t i = 0; i < best.size(); ++i) {
    const PlannedLayout& it = best[i];
    const RankLayout& layout = it.layout;
    const bool both = layout.ranks > 1 && layout.replicas > 1;
    std::snprintf(text.data(), text.size(),
                  "%2zu %5d %4d %4d  %-15s %3d %5lld %6d %-9s %10.2f %12.0f %5.1f%% %7.1f%% %10s %10s %6d/%d\n", i + 1,
                  layout.replicas, layout.ranks, layout.zero, layout.schedule.c_str(), layout.chunks,
                  static_cast<long long>(layout.rows), layout.micro_batches, both ? to_word(layout.order) : "-",
                  it.step_ms, tokens_per_second(request, it), 100 * it.idle, 100 * it.exposed_ms / it.step_ms,
                  format_bytes(it.bytes).c_str(), format_bytes(static_cast<std::int64_t>(it.sent_bytes)).c_str(),
                  it.recomputed_units, it.units);
    lines += text.data();
  }
  return lines + kWords;
}

std::string short_words(const PlannedLayout& it) {
  const RankLayout& layout = it.layout;
  return "d = " + std::to_string(layout.replicas) + ", p = " + std::to_string(layout.ranks) + ", " + layout.schedule +
         (layout.chunks > 1 ? " with " + std::to_string(layout.chunks) + " stages per rank" : "") +
         (layout.replicas > 1 ? ", ZeRO " + std::to_string(layout.zero) : "") + ", b = " + std::to_string(layout.rows);
}

// Where the answer turns.
std::string turn_words(const LayoutRequest& request, const Cluster& cluster, const LayoutSearch::Turn& turn) {
  using At = LayoutSearch::Turn::At;
  const bool hosts = cluster.ranks_per_host > 0 && cluster.ranks_per_host < request.ranks;
  const std::string where = hosts ? "between hosts" : "of the ranks";
  if (!turn.fsdp) return "FSDP (ZeRO 3, p = 1) is not among what fits and is legal here.\n";
  if (!turn.pipeline) return "No pipeline (p > 1) is among what fits and is legal here.\n";
  if (turn.at == At::never)
    return "FSDP (ZeRO 3, p = 1) is slower than the best pipeline at every speed of the links " + where + ".\n";
  if (turn.at == At::always)
    return "FSDP (ZeRO 3, p = 1) is faster than every pipeline at every speed of the links " + where + ".\n";
  return "Where the answer turns: FSDP (ZeRO 3, p = 1) is faster than every pipeline from " +
         with_digits(turn.bandwidth, 3) + " GB/s " + where +
         " on; below, the best pipeline (there: " + short_words(*turn.pipeline) + ") is faster.\n";
}

std::string command_of(const Options& options, const LayoutRequest& request, const PlannedLayout& it) {
  const RankLayout& layout = it.layout;
  std::string words = "mpirun -n " + std::to_string(request.ranks) + " ./train_gpt train";
  if (layout.replicas > 1) words += " --data-parallel " + std::to_string(layout.replicas);
  if (layout.zero > 0) words += " --zero " + std::to_string(layout.zero);
  words += " --schedule " + layout.schedule;
  if (layout.chunks > 1 && takes_chunks(layout.schedule)) words += " --chunks " + std::to_string(layout.chunks);
  words +=
      " --micro-batch-size " + std::to_string(layout.rows) + " --micro-batches " + std::to_string(layout.micro_batches);
  std::string cut;
  for (const int units : layout.partition) cut += (cut.empty() ? "" : ",") + std::to_string(units);
  if (layout.ranks == 1 && layout.chunks > 1) words += " --partition " + cut;
  if (it.recomputed_units > 0) {
    words += " --recompute auto --memory-limit " + std::to_string(options.pipeline.memory_limit);
  }
  if (layout.order != RankOrder::pipeline) words += " --rank-order replicas";
  return words;
}

Json layout_json(const LayoutRequest& request, const PlannedLayout& it) {
  const RankLayout& layout = it.layout;
  return {{"data_parallel", layout.replicas},
          {"stages", layout.ranks},
          {"zero", layout.zero},
          {"schedule", layout.schedule},
          {"chunks", layout.chunks},
          {"micro_batch_size", layout.rows},
          {"micro_batches", layout.micro_batches},
          {"rank_order", to_word(layout.order)},
          {"partition", layout.partition},
          {"step_ms_predicted", it.step_ms},
          {"tokens_per_s_predicted", tokens_per_second(request, it)},
          {"idle_share", it.idle},
          {"exposed_ms", it.exposed_ms},
          {"bytes", it.bytes},
          {"sent_bytes", it.sent_bytes},
          {"recomputed_units", it.recomputed_units}};
}

// What would fit: more ranks, with everything shared out and the smallest micro-batches.
std::string what_ranks_fit(const Options& options, const ModelConfig& model, const Cluster& cluster, int ranks) {
  constexpr int kMostRanks = 1 << 14;
  for (int more = 2 * ranks; more <= std::min(kMostRanks, 64 * ranks); more *= 2) {
    LayoutRequest request = layout_request(options, model, more);
    request.rows = request.rows / ranks * more;
    request.held = {.rows = request.held.rows.value_or(request.least_rows), .chunks = {1}};
    LayoutSearch search(std::move(request));
    const std::vector<PlannedLayout> found = search.best(cluster, LayoutKind::any, 1);
    if (!found.empty()) {
      return "; --ranks " + std::to_string(more) + " would do (" + short_words(found.front()) + ": " +
             format_bytes(found.front().bytes) + ")";
    }
  }
  return "";
}

[[noreturn]] void refuse(const Options& options, const ModelConfig& model, const Cluster& cluster,
                         LayoutSearch& search) {
  const std::string asked = "--ranks " + std::to_string(options.layouts.ranks);
  if (!search.closest()) {
    throw std::invalid_argument(asked +
                                ": no layout is legal with what else is given: --stages times --data-parallel "
                                "must be --ranks, and --global-batch-size a multiple of --data-parallel times "
                                "--micro-batch-size");
  }
  const PlannedLayout& closest = *search.closest();
  throw std::invalid_argument(
      "--memory-limit " + std::to_string(options.pipeline.memory_limit) + " (" +
      format_bytes(options.pipeline.memory_limit) + "): none of " + std::to_string(search.counts().candidates) +
      " layouts of " + counted(options.layouts.ranks, "rank") + " fits. What comes closest needs " +
      format_bytes(closest.bytes) + " (" + short_words(closest) +
      (closest.recomputed_units > 0 ? ", everything recomputed" : "") + "): give --memory-limit " +
      std::to_string(closest.bytes) + what_ranks_fit(options, model, cluster, options.layouts.ranks));
}

}  // namespace

int run_plan_ranks(const Options& options) {
  const double begin = monotonic_seconds();
  const ModelConfig model = model_config(options);
  check_positions(options, model);
  const Cluster cluster = links_of(options);
  const LayoutRequest request = layout_request(options, model, options.layouts.ranks);
  LayoutSearch search(request);
  const std::vector<PlannedLayout> best = search.best(cluster, LayoutKind::any, kRows);
  if (best.empty()) refuse(options, model, cluster, search);
  const LayoutSearch::Turn turn = search.turn(cluster);
  if (options.plan_json) {
    Json json = {{"ranks", request.ranks}, {"rows", request.rows}, {"layouts", Json::array()}};
    for (const PlannedLayout& it : best) json["layouts"].push_back(layout_json(request, it));
    const bool turns = turn.at == LayoutSearch::Turn::At::bandwidth;
    json["fsdp_from_gb_per_s"] = turns ? Json(turn.bandwidth) : Json(nullptr);
    std::printf("%s\n", json.dump().c_str());
    return 0;
  }
  const LayoutSearch::Counts& counts = search.counts();
  std::printf("%s%s\n%s%s", header(options, request, cluster).c_str(), table(request, best).c_str(),
              turn_words(request, cluster, turn).c_str(), kRest);
  std::printf("%zu layouts considered, %zu simulations, %zu plans, %.1f s\n\n%s\n", counts.candidates, counts.simulated,
              counts.planned, monotonic_seconds() - begin, command_of(options, request, best.front()).c_str());
  return 0;
}

}  // namespace train_gpt
