// From the options of `train_gpt simulate` to simulated schedules.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/cli/options.h"
#include "commands/pareto.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/collectives.h"
#include "pipeline/simulate/reductions.h"
#include "pipeline/simulate/simulator.h"
#include "pipeline/simulate/versions.h"

namespace train_gpt {

struct SimulatedSchedule {
  std::string name;  // as given: a name, auto, or the file
  Schedule schedule;
  Simulation simulation;
  std::vector<std::string> remarks;  // the choice of `auto` and its reason; notices of the check
  // For a schedule that never flushes, whose simulation is of several steps.
  std::optional<SteadyState> steady = std::nullopt;
  std::optional<ReducedStep> reduced = std::nullopt;  // --cost-reduction, of a schedule that flushes
  std::optional<SharedStep> shared = std::nullopt;    // with what replicas exchange on the links of a cluster, likewise
};

struct SimulatedSchedules {
  std::vector<SimulatedSchedule> simulated;  // in the given order
  std::vector<std::string> impossible;       // one line each: name and reason; only for "all"
  std::vector<std::string> over_limit;       // names and peaks of those above --memory-limit
};

// How much of each simulation is kept.
enum class Detail : std::uint8_t { figures, channels, intervals };

// Throws std::invalid_argument as run_simulate does.
SimulatedSchedules simulate_all(const Options& options, Detail detail);

// --pareto: every named schedule that auto considers, and what the search finds within each of several limits.
std::vector<MemoryAndTime> memory_and_time(const Options& options);

// The costs that the options give for so many ranks of a pipeline, with the size of a message from the model if a
// bandwidth is given.
Costs costs_of(const Options& options, int ranks);

}  // namespace train_gpt
