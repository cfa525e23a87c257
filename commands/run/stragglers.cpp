#include "commands/run/stragglers.h"

#include <algorithm>
#include <cstdio>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {
namespace {

SimulateOptions figures() {
  SimulateOptions options;
  options.intervals = options.channels = options.bound_and_memory = false;
  return options;
}

double median_without(const std::vector<double>& values, std::size_t left_out) {
  std::vector<double> others = values;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>((others.size() - 1) / 2);
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

}  // namespace

Stragglers::Stragglers(const Schedule& schedule, StageCosts planned, int ranks)
    : schedule_(schedule),
      planned_(std::move(planned)),
      planned_busy_(simulate_step(schedule, planned_, figures()).busy),
      slow_steps_(static_cast<std::size_t>(ranks)),
      told_(static_cast<std::size_t>(ranks)) {}

std::string Stragglers::add(std::span<const RankTimes> times) {
  if (times.size() != slow_steps_.size() || times.size() < 2) return "";
  std::vector<double> slowness;
  for (std::size_t w = 0; w < times.size(); ++w) {
    const double planned = planned_busy_[w % planned_busy_.size()];
    if (planned <= 0) return "";
    slowness.push_back(times[w].busy / planned);
  }
  std::string line;
  for (std::size_t w = 0; w < times.size(); ++w) {
    const double usual = median_without(slowness, w);
    slow_steps_[w] = slowness[w] >= kSlow * usual ? slow_steps_[w] + 1 : 0;
    if (slow_steps_[w] < kSteps || told_[w] || !line.empty()) continue;
    told_[w] = 1;
    line = told(w, slowness, usual);
  }
  return line;
}

// Compares the step of the rank's pipeline with one in which the rank is as fast as its peers.
std::string Stragglers::told(std::size_t rank, const std::vector<double>& slowness, double usual) const {
  const std::size_t pipeline = planned_busy_.size(), first = rank / pipeline * pipeline;
  const auto step_ms = [&](bool as_peers) {
    StageCosts costs = planned_;
    for (std::size_t s = 0; s < schedule_.placement.stages.size(); ++s) {
      const std::size_t owner = first + static_cast<std::size_t>(schedule_.placement.stages[s].rank);
      const double factor = as_peers && owner == rank ? usual : slowness[owner];
      for (std::vector<double>* pass : {&costs.forward, &costs.input, &costs.weight, &costs.fused})
        if (!pass->empty()) (*pass)[s] *= factor;
    }
    return simulate_step(schedule_, costs, figures()).makespan;
  };
  const double now = step_ms(false), then = step_ms(true);
  char text[240];
  std::snprintf(text, sizeof text,
                "rank %zu has been %.0f%% slower than its peers for %d steps: as fast as they are, a step would take "
                "%.1f ms instead of %.1f, %.1f%% less for the whole job (train_gpt whatif says more)",
                rank, 100 * (slowness[rank] / usual - 1), kSteps, then, now, 100 * (1 - then / now));
  return text;
}

}  // namespace train_gpt
