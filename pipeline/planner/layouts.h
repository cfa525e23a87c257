// Pipeline, replicas, sharding, or several of them at once? All ways to share N ranks out are compared: d replicas of a
// pipeline of p ranks, its schedule and virtual stages, ZeRO, micro-batches, recomputation, and which ranks are
// neighbours. The step of each is simulated with the links of a cluster; its memory is that of the exact plan. Not
// counted: the update itself, sums of the two ends of a tied embedding, and that smaller products are less efficient.
//
// What cannot be among the best is never looked at closely: every candidate has a bound below its time, first from its
// work alone, then from its simulation without collectives, and the candidate of the smallest bound is looked at next.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/plan/execution_plan.h"
#include "pipeline/planner/unit_costs.h"
#include "pipeline/schedule/catalog.h"
#include "pipeline/simulate/cluster.h"

namespace train_gpt {

// What is given of a layout. The rest is searched.
struct HeldLayout {
  std::optional<int> ranks = {}, replicas = {}, zero = {};  // p, d
  std::optional<std::int64_t> rows = {};                    // b
  std::optional<std::string> schedule = {};
  std::optional<RankOrder> order = {};
  std::vector<int> chunks = {1, 2, 3, 4};  // v that are considered
  bool may_recompute = true;
};

struct LayoutRequest {
  PlanRequest base;               // model, sequence, precision, optimizer; batch, schedule and cut are searched
  int ranks = 1;                  // N
  std::int64_t rows = 1;          // of a step, whatever the layout
  std::int64_t least_rows = 1;    // of a micro-batch: smaller ones may be less efficient than `row` says
  UnitCosts row;                  // of one row
  std::int64_t memory_limit = 0;  // bytes of a rank; 0: none
  std::function<std::int64_t(const BatchShape&)> workspace_bytes;  // none: 0
  HeldLayout held;
};

struct RankLayout {
  int ranks = 1, replicas = 1;  // p, d
  std::string schedule = {};
  int chunks = 1;
  int zero = 0;
  std::int64_t rows = 1;  // b
  int micro_batches = 1;
  RankOrder order = RankOrder::pipeline;
  Partition partition = {};

  bool is_fsdp() const { return ranks == 1 && zero == 3; }
  bool is_pipeline() const { return ranks > 1; }
};

struct PlannedLayout {
  RankLayout layout = {};
  double step_ms = 0;
  double idle = 0;         // share of ranks x step
  double exposed_ms = 0;   // of the step, for reductions and gathers
  std::int64_t bytes = 0;  // of the rank that needs most
  double sent_bytes = 0;   // in a step, by the rank that sends most
  int recomputed_units = 0;
  int units = 0;
};

enum class LayoutKind : std::uint8_t { any, fsdp, pipeline };

// All of its milliseconds times a factor.
UnitCosts scaled(UnitCosts costs, double factor);
// Of one row, from operation counts, at so many floating-point operations per second of a rank.
UnitCosts costs_at_speed(const ModelConfig& model, std::int64_t seq_len, double flops_per_second);

class LayoutSearch {
 public:
  explicit LayoutSearch(LayoutRequest request);
  ~LayoutSearch();

  // The fastest, of each (d, p, ZeRO) the best alone, at most `count`. Empty: none fits.
  std::vector<PlannedLayout> best(const Cluster& cluster, LayoutKind kind, std::size_t count);

  // The bandwidth of the links between hosts (of those inside, where there is one host only), GB/s, from which on FSDP
  // is faster than every pipeline, within a hundredth.
  struct Turn {
    enum class At : std::uint8_t { always, never, bandwidth } at = At::never;  // FSDP is faster
    double bandwidth = 0;
    std::optional<PlannedLayout> fsdp, pipeline;  // there; none: nothing of that kind fits
  };
  Turn turn(Cluster cluster);

  struct Counts {
    std::size_t candidates = 0, simulated = 0, planned = 0;
  };
  const Counts& counts() const;

  // Of the layouts that were refused for their memory, the one that comes closest: planned with all recomputation that
  // was allowed.
  const std::optional<PlannedLayout>& closest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace train_gpt
