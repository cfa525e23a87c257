#include "pipeline/schedule/flushless.h"

#include <algorithm>
#include <stdexcept>

#include "pipeline/schedule/generators.h"

namespace train_gpt {
namespace {

constexpr const char* kPipeDream = "pipedream";

std::int64_t warmup_factor(const FlushlessRequest& request) {
  return takes_warmup_factor(request.name) ? request.warmup_factor : 1;
}

}  // namespace

const std::vector<std::string>& flushless_names() {
  static const std::vector<std::string> names = {"2bw", kPipeDream};
  return names;
}

bool is_flushless(const std::string& name) { return std::ranges::count(flushless_names(), name) > 0; }

bool takes_warmup_factor(const std::string& name) { return is_flushless(name) && !stashes_weights(name); }

bool stashes_weights(const std::string& name) { return name == kPipeDream; }

int older_versions(const Schedule& schedule, int rank) {
  if (schedule.steps == 1) return 0;
  return stashes_weights(schedule.name) ? schedule.ranks - 1 - rank : 1;
}

std::optional<std::string> violation(const FlushlessRequest& request) {
  constexpr std::int64_t kMostPasses = std::int64_t{1} << 28;  // as pipeline/schedule/catalog.cpp
  const std::int64_t p = request.ranks, m = request.micro_batches, w = warmup_factor(request), least = w * (p - 1);
  if (p < 1) return "--stages " + std::to_string(p) + ": a pipeline needs at least 1 stage";
  if (m < std::max<std::int64_t>(1, least)) {
    return "--micro-batches " + std::to_string(m) + ": schedule " + request.name + " at " + std::to_string(p) +
           " stages" + (w > 1 ? " with --warmup-factor 2" : "") + " needs at least " +
           std::to_string(std::max<std::int64_t>(1, least));
  }
  if (p > kMostPasses / m || p * m > kMostPasses / request.steps) {
    return "schedule " + request.name + " with " + std::to_string(p) + " stages, " + std::to_string(m) +
           " micro-batches and " + std::to_string(request.steps) +
           " steps is too large: their product may be at most " + std::to_string(kMostPasses);
  }
  return std::nullopt;
}

Schedule make_schedule(const FlushlessRequest& request) {
  if (auto text = violation(request)) throw std::invalid_argument(*text);
  const int p = request.ranks, m = request.micro_batches, steps = request.steps;
  Schedule schedule =
      stashes_weights(request.name) ? pipedream(p, m, steps) : two_buffered_weights(p, m, request.warmup_factor, steps);
  schedule.name = request.name;
  return schedule;
}

}  // namespace train_gpt
