#include "commands/run/what_fits.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <vector>

#include "pipeline/plan/plan_bytes.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/schedule/flushless.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {
namespace {

struct Attempt {
  std::string options;  // to be given
  ChoiceRequest request;
};

bool is_named(const Schedule& schedule) {
  const std::vector<std::string>& names = schedule_names();
  return is_flushless(schedule.name) || std::find(names.begin(), names.end(), schedule.name) != names.end();
}

// The request with other sizes. Throws std::invalid_argument if the schedule does not exist for them.
ChoiceRequest resized(const ChoiceRequest& request, int ranks, std::int64_t rows, int micro_batches) {
  ChoiceRequest other = request;
  other.ranks = ranks;
  other.base.batch.rows = rows;
  other.base.batch.micro_batches = micro_batches;
  if (ranks != request.ranks) {
    other.costs.slowness.clear();
    other.memory_limits.clear();
  }
  if (!request.schedule) return other;
  const Schedule& schedule = *request.schedule;
  if (!is_named(schedule)) throw std::invalid_argument("its schedule is for other sizes");
  if (is_flushless(schedule.name)) {
    const int ahead = schedule.ranks > 1 ? update_slack(schedule) : 0;  // m - w(p-1)
    const int factor = schedule.ranks > 1 ? (micro_batches_of_step(schedule) - ahead) / (schedule.ranks - 1) : 1;
    other.schedule = make_schedule(FlushlessRequest{.name = schedule.name,
                                                    .ranks = ranks,
                                                    .micro_batches = micro_batches,
                                                    .warmup_factor = factor,
                                                    .steps = kPlannedSteps});
    return other;
  }
  const bool free = takes_chunks(schedule.name);
  other.schedule = make_schedule(
      {.name = schedule.name, .ranks = ranks, .micro_batches = micro_batches, .chunks = free ? schedule.chunks : 0});
  return other;
}

// No plan of these ranks fits: together they hold every parameter once, whatever is recomputed or shared out.
bool is_hopeless(const ChoiceRequest& request) {
  if (!request.base.computes) return false;  // no parameters are kept
  const double ranks = static_cast<double>(request.ranks) * request.base.batch.replicas;
  std::int64_t most = request.memory_limit;
  for (const std::int64_t limit : request.memory_limits) most = std::max(most, limit);
  return 4.0 * static_cast<double>(parameter_count(request.base.model)) > ranks * static_cast<double>(most);
}

// The request as it is, and with less memory by recomputation, by another schedule, by both.
std::vector<Attempt> with_less_kept(const std::string& options, ChoiceRequest request) {
  if (request.cut == ChoiceRequest::Cut::list) request.cut = ChoiceRequest::Cut::measured;
  if (request.recompute == ChoiceRequest::Recompute::list) request.recompute = ChoiceRequest::Recompute::none;
  std::vector<Attempt> attempts;
  if (!options.empty()) attempts.push_back({options, request});
  const bool recomputes = request.recompute == ChoiceRequest::Recompute::automatic;
  if (!recomputes) {
    attempts.push_back({options + " --recompute auto", request});
    attempts.back().request.recompute = ChoiceRequest::Recompute::automatic;
  }
  if (!request.schedule) return attempts;
  Attempt other{options + " --schedule auto", request};
  other.request.schedule.reset();
  attempts.push_back(other);
  if (recomputes) return attempts;
  other.options += " --recompute auto";
  other.request.recompute = ChoiceRequest::Recompute::automatic;
  attempts.push_back(other);
  return attempts;
}

}  // namespace

std::string what_fits(const ChoiceRequest& refused) {
  ChoiceRequest request = refused;
  request.search_beyond_names = false;
  const BatchShape& batch = request.base.batch;
  const auto first_that_fits = [](const std::vector<Attempt>& attempts) -> std::string {
    for (const Attempt& attempt : attempts) {
      if (is_hopeless(attempt.request)) continue;
      try {
        const Choice choice = choose(attempt.request);
        if (!choice.fits) continue;
        std::string text = ". This fits:" + attempt.options;
        if (!attempt.request.schedule) text += " (" + choice.plan.request.schedule.name + ", ";
        return text + (attempt.request.schedule ? " (" : "") + format_bytes(largest_rank(choice.plan)) + " at most)";
      } catch (const std::invalid_argument&) {  // not for these sizes
      }
    }
    return "";
  };
  if (std::string found = first_that_fits(with_less_kept("", request)); !found.empty()) return found;
  for (std::int64_t factor = 2; batch.rows % factor == 0; factor *= 2) {
    const std::int64_t rows = batch.rows / factor;
    const auto micro_batches = static_cast<int>(batch.micro_batches * factor);
    try {
      const std::string options =
          " --micro-batch-size " + std::to_string(rows) + " --micro-batches " + std::to_string(micro_batches);
      std::string found =
          first_that_fits(with_less_kept(options, resized(request, request.ranks, rows, micro_batches)));
      if (!found.empty()) return found;
    } catch (const std::invalid_argument&) {
    }
  }
  constexpr int kMostRanks = 64;
  int ranks = request.ranks;
  while (2 * ranks <= std::min(kMostRanks, unit_count(request.base.model))) {
    ranks *= 2;
    try {
      const std::string options = " " + std::to_string(ranks) + " ranks per pipeline,";
      std::string found =
          first_that_fits(with_less_kept(options, resized(request, ranks, batch.rows, batch.micro_batches)));
      if (!found.empty()) return found;
    } catch (const std::invalid_argument&) {
    }
  }
  return ". Nothing was found that fits: neither recomputation, another schedule nor smaller micro-batches" +
         std::string(ranks > request.ranks ? ", nor up to " + std::to_string(ranks) + " ranks per pipeline" : "");
}

}  // namespace train_gpt
