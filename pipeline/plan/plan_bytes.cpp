#include "pipeline/plan/plan_bytes.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "model/optimizer.h"
#include "pipeline/plan/shards.h"
#include "pipeline/schedule/flushless.h"

namespace train_gpt {
namespace {

std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

std::int64_t ring_bytes(const RankPlan& plan) {
  std::int64_t bytes = 0;
  for (const Ring& ring : plan.rings) bytes += ring.slots * ring.slot_bytes;
  return bytes;
}

// Bytes of the squared sums of gradients, which only the first of two mirrored ranks computes
// (Groups::owns_parameters).
std::int64_t summed_atoms(const PlanRequest& request, const RankPlan& plan) {
  return is_first_of_mirrored(request, plan.rank) ? owned_atoms(plan.layout) : 0;
}

// The names of every use but pools.
const char* line_name(MemoryUse use) {
  static constexpr std::array<const char*, kMemoryUses> kNames = {
      "parameters",       "parameters, bf16 copy", "parameters, spare",         "parameters, bf16 spare",
      "gradients",        "gradients, second",     "gradients, own part",       "gradients, pending sums",
      "first moment",     "second moment",         "update of the step before", "",
      "message buffers",  "keys and values",       "tokens and losses",         "scratch",
      "kernel workspace", "norms and scalars"};
  return kNames[static_cast<std::size_t>(use)];
}

}  // namespace

std::string pool_name(const Pool& pool) {
  static constexpr std::array<const char*, 3> kNames = {"activations F..I", "activations F..W",
                                                        "pending weight grads I..W"};
  return kNames[static_cast<std::size_t>(pool.lifetime)];
}

std::int64_t largest_rank(const Plan& plan) {
  std::int64_t most = 0;
  for (const RankPlan& rank : plan.ranks) most = std::max(most, rank.total_bytes());
  return most;
}

std::string format_bytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

void add_memory_lines(const PlanRequest& request, RankPlan& plan) {
  const auto line = [&](MemoryUse use, std::int64_t bytes) {
    if (bytes > 0) plan.memory.push_back({use, -1, line_name(use), aligned(bytes)});
  };
  constexpr std::int64_t kFloat = sizeof(float);
  if (!request.computes) {
    line(MemoryUse::messages, ring_bytes(plan));
    return;
  }
  const bool gathers = plan.parameter_windows.has_value();
  line(MemoryUse::parameters, (gathers ? shard_elements(plan.sections) : plan.layout.elements) * kFloat);
  if (gathers || request.precision == Precision::bf16) {
    line(MemoryUse::working_parameters, plan.working_layout().elements * element_size(request.precision));
    if (gathers) plan.memory.back().name = "parameters, gathered";
  }
  if (request.training) {
    const bool low = request.precision != Precision::fp32;
    const int older = older_versions(request.schedule, plan.rank);
    const bool stashes = stashes_weights(request.schedule.name);
    line(MemoryUse::spare_parameters, (request.spare_parameters ? 1 : low ? 0 : older) * plan.layout.elements * kFloat);
    if (stashes && older > 0 && !low) plan.memory.back().name = "parameters, stashed";
    line(MemoryUse::spare_working_parameters,
         (low ? older : 0) * plan.layout.elements * element_size(request.precision));
    if (stashes && older > 0 && low) plan.memory.back().name = "parameters, bf16 stashed";
    const std::int64_t gradients = plan.gradient_layout().gradient_elements * kFloat;
    line(MemoryUse::gradients, gradients);
    if (request.flushless() && !stashes && request.gradient_buffers == 2) line(MemoryUse::second_gradients, gradients);
    if (plan.gradient_windows) line(MemoryUse::gradient_shards, gradient_shard_elements(plan.sections) * kFloat);
    line(MemoryUse::group_gradients, request.pending_sums() * gradients);
    const bool zero = request.zero > 0;
    line(MemoryUse::first_moment, (zero ? shard_elements(plan.sections) : plan.layout.elements) * kFloat);
    line(MemoryUse::second_moment,
         (zero ? second_shard_elements(plan.sections) : plan.layout.second_elements) * kFloat);
    if (request.error_feedback) line(MemoryUse::last_update, plan.layout.elements * kFloat);
  }
  for (std::size_t i = 0; i < plan.pools.size(); ++i) {
    const Pool& pool = plan.pools[i];
    if (pool.slots == 0) continue;
    plan.memory.push_back(
        {MemoryUse::pool, static_cast<int>(i), pool_name(pool), aligned(pool.slots * pool.slot_bytes)});
  }
  line(MemoryUse::messages, ring_bytes(plan));
  const std::int64_t numbers = aligned(request.batch.micro_batch_tokens() * kFloat);  // of one micro-batch
  std::int64_t cache = 0;
  for (const StagePlan& stage : plan.stages) cache += stage.bytes.cache;
  line(MemoryUse::cache, cache);
  const std::int64_t logits =
      (request.caches ? 1 : request.batch.rows) * request.model.padded_vocab() * element_size(request.precision);
  line(MemoryUse::tokens, (plan.tokens.count() + plan.targets.count() + plan.losses.count()) * numbers +
                              (plan.gives_logits ? aligned(logits) : 0));
  line(MemoryUse::scratch, plan.scratch_bytes);
  line(MemoryUse::workspace, request.workspace_bytes);
  line(MemoryUse::norms, summed_atoms(request, plan) * static_cast<std::int64_t>(sizeof(double)) + 256);
}

std::int64_t RankPlan::bytes_of(MemoryUse use) const {
  std::int64_t bytes = 0;
  for (const MemoryLine& line : memory) bytes += line.use == use ? line.bytes : 0;
  return bytes;
}

std::int64_t RankPlan::total_bytes() const {
  std::int64_t total = 0;
  for (const MemoryLine& line : memory) total += line.bytes;
  return total;
}

bool is_first_of_mirrored(const PlanRequest& request, int rank) {
  return request.directions() == 1 || rank < request.schedule.ranks - rank;
}

std::int64_t copy_bytes_of(const PlanRequest& request, const RankPlan& rank, int replica) {
  if (!is_first_of_mirrored(request, rank.rank) || (replica > 0 && request.zero == 0)) return 0;
  const bool has_parameters = replica == 0 || rank.parameter_windows;
  return (has_parameters ? rank.bytes_of(MemoryUse::parameters) : 0) + rank.bytes_of(MemoryUse::first_moment) +
         rank.bytes_of(MemoryUse::second_moment);
}

namespace {

std::string cell(const RankPlan& rank, const std::string& name) {
  std::int64_t bytes = 0;
  int slots = 0;
  for (const MemoryLine& line : rank.memory) bytes += line.name == name ? line.bytes : 0;
  for (const Pool& pool : rank.pools) slots += pool_name(pool) == name ? pool.slots : 0;
  if (bytes == 0) return "-";
  return format_bytes(bytes) + (slots > 0 ? " (" + std::to_string(slots) + ")" : "");
}

std::string units_cell(const RankPlan& rank) {
  std::string text;
  for (const StagePlan& stage : rank.stages) {
    text += (text.empty() ? "" : "+") + std::to_string(stage.shape.first_unit) + ".." +
            std::to_string(stage.shape.last_unit - 1);
  }
  return text;
}

// The ranks for which `holds`, as people say it: "rank 0", "ranks 0, 2", "every rank"; empty: none.
template <class Holds>
std::string ranks_text(const Plan& plan, const Holds& holds) {
  std::string text;
  std::size_t count = 0;
  for (const RankPlan& rank : plan.ranks) {
    if (!holds(rank)) continue;
    text += (count++ == 0 ? "" : ", ") + std::to_string(rank.rank);
  }
  if (count == 0) return text;
  if (count == plan.ranks.size()) return count == 1 ? "the rank" : "every rank";
  return (count == 1 ? "rank " : "ranks ") + text;
}

// Says where --zero 2 and 3 gain nothing, and how often parameters are gathered.
std::string zero_lines(const Plan& plan) {
  std::string lines;
  const auto say = [&](int zero, const std::string& ranks, const std::string& what) {
    if (plan.request.zero >= zero && !ranks.empty()) lines += "--zero: on " + ranks + " " + what + "\n";
  };
  say(2, ranks_text(plan, [](const RankPlan& rank) { return !rank.gradient_windows; }),
      "gradients stay whole: so many stages are between their first and last W at once that nothing is gained");
  say(3, ranks_text(plan, [](const RankPlan& rank) { return !rank.parameter_windows; }),
      "parameters stay whole: so many stages are in use at once that nothing is gained");
  say(3,
      ranks_text(plan, [](const RankPlan& rank) { return rank.parameter_windows && rank.parameter_windows->per_use; }),
      "parameters are gathered for each run of actions of their stage");
  say(3,
      ranks_text(plan, [](const RankPlan& rank) { return rank.parameter_windows && !rank.parameter_windows->per_use; }),
      "parameters are gathered once for each step");
  return lines;
}

}  // namespace

std::string memory_table(const Plan& plan) {
  constexpr std::size_t kMostColumns = 8;
  std::vector<std::string> names;
  for (const RankPlan& rank : plan.ranks) {
    for (const MemoryLine& line : rank.memory) {
      if (std::find(names.begin(), names.end(), line.name) == names.end()) names.push_back(line.name);
    }
  }
  const std::size_t columns = std::min(kMostColumns, plan.ranks.size());
  std::string table;
  const auto row = [&](const std::string& name, const auto& text_of) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%-26s", name.c_str());
    table += text.data();
    for (std::size_t r = 0; r < columns; ++r) {
      std::snprintf(text.data(), text.size(), " %15s", text_of(plan.ranks[r]).c_str());
      table += text.data();
    }
    table += '\n';
  };
  row("memory (slots)", [](const RankPlan& r) { return "rank " + std::to_string(r.rank); });
  row("units", units_cell);
  row("live micro-batches", [](const RankPlan& r) { return std::to_string(r.live_micro_batches); });
  for (const std::string& name : names) row(name, [&](const RankPlan& r) { return cell(r, name); });
  row("total", [](const RankPlan& r) { return format_bytes(r.total_bytes()); });
  if (std::any_of(plan.ranks.begin(), plan.ranks.end(), [](const RankPlan& r) { return r.copy_bytes > 0; })) {
    row("checkpoint copy, on host",
        [](const RankPlan& r) { return r.copy_bytes > 0 ? format_bytes(r.copy_bytes) : "-"; });
    if (plan.request.batch.replicas > 1) {
      table += "Such copies has the first of the " + std::to_string(plan.request.batch.replicas) + " replicas; the " +
               (plan.request.zero > 0 ? "others copy their own parts.\n" : "others write nothing.\n");
    }
  }
  if (columns < plan.ranks.size()) {
    const auto largest =
        std::max_element(plan.ranks.begin(), plan.ranks.end(),
                         [](const RankPlan& a, const RankPlan& b) { return a.total_bytes() < b.total_bytes(); });
    table += "and " + std::to_string(plan.ranks.size() - columns) + " more ranks; the largest is rank " +
             std::to_string(largest->rank) + " with " + format_bytes(largest->total_bytes()) + "\n";
  }
  if (plan.request.training && plan.request.computes && plan.request.batch.replicas > 1) table += zero_lines(plan);
  return table;
}

}  // namespace train_gpt
