// From costs to a plan: chooses what a run leaves open - schedule, partition, form of the head, recomputation - by the
// simulated makespan under the memory limit. Nothing here measures or communicates: every rank makes the same choice
// from the same costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/plan/execution_plan.h"
#include "pipeline/planner/unit_costs.h"
#include "pipeline/search/search.h"

namespace train_gpt {

// Costs by unit. `given`: --cost-* give the costs of a rank's share, however the model is cut.
struct CostModel {
  UnitCosts units;
  std::vector<double> slowness;  // [rank]; empty: 1
  Costs links;                   // only latency, bandwidth and send_slowdown are used
  std::optional<Costs> given;
  std::string source;  // for people: "measured on this machine", "profile.json", ...
};
CostModel cost_model(const Profile& profile, const ModelConfig& model, int p, const std::string& source);
CostModel estimated_cost_model(const ModelConfig& model, std::int64_t seq_len, int p);
CostModel given_cost_model(const Costs& costs, const ModelConfig& model, std::int64_t seq_len, int p);

struct ChoiceRequest {
  PlanRequest base;  // model, batch, precision, workspace and what kind of run; the rest is chosen
  int ranks = 1;     // p
  CostModel costs;

  std::optional<Schedule> schedule;        // none: the best of named schedules and of the search
  std::vector<int> chunks = {1, 2, 3, 4};  // the v that a chosen schedule may have
  bool search_beyond_names = true;
  std::function<bool(const SearchProgress&)> search_progress = nullptr;  // see SearchRequest::progress
  enum class Cut : std::uint8_t { measured, uniform, list };
  Cut cut = Cut::measured;
  Partition partition;  // of Cut::list; of Cut::measured: one more to start from, if any
  std::optional<HeadForm> head;
  enum class Recompute : std::uint8_t { none, automatic, list };
  Recompute recompute = Recompute::none;
  std::vector<int> recompute_counts;  // of Recompute::list, per model stage
  std::int64_t memory_limit = 0;      // bytes per rank; 0: none
  // [rank], if ranks have different limits, of which memory_limit is the smallest; empty: memory_limit holds for all.
  std::vector<std::int64_t> memory_limits = {};
  std::int64_t device_bytes = 0;  // per rank, of the device, if known; a stored head has to fit

  std::int64_t limit_of(std::size_t rank) const { return memory_limits.empty() ? memory_limit : memory_limits[rank]; }
};

struct Choice {
  Plan plan;
  StageCosts costs;                        // of the plan's stages, from the costs of units
  Simulation predicted;                    // of the plan's schedule with these costs
  std::optional<double> uniform_makespan;  // ms, of the same schedule with a uniform cut; none: does not fit
  bool fits = true;                        // within the memory limit; false: the plan that came closest
  std::string schedule_reason;             // --schedule auto: the choice and its reason
};

// Throws std::invalid_argument for contradictions (a list that is no partition, fewer units than stages ..). Returns a
// plan that exceeds the memory limit with fits = false, for the caller to refuse.
Choice choose(const ChoiceRequest& request);

// The table of a cut: per rank its units, milliseconds, share of the work and bytes.
std::string partition_table(const Choice& choice, const CostModel& costs);

// "; a uniform cut: 94.8 ms, which is 41.0% more", for the line that gives the makespan; empty if none was compared.
std::string beside_uniform_cut(double makespan, std::optional<double> uniform_makespan);

}  // namespace train_gpt
