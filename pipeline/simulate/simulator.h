// The simulator: computes when each action of a schedule runs, in time linear in the number of actions.
//
// The rules (those that all published figures follow): a rank runs its list strictly in order, one action at a time. F
// needs the F of the previous virtual stage, I and B need the F of their own stage and the I or B of the next one, W
// needs its I. A hop between two ranks takes the latency of its link, plus the size of the message over its bandwidth
// if both are given (the messages of one channel then follow each other). A send costs the sender nothing, unless sends
// slow computation. B hands its gradient on only when it ends. A fused F&B pair of given cost awaits both inputs, then
// runs as one action.
//
//   Schedule schedule = make_schedule({.name = "1f1b", .ranks = 4, .micro_batches = 8});
//   Simulation simulation = simulate(schedule, Costs{});      // F = I = W = 1 ms
//   simulation.bubble                                          // 0.2727...
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/channel.h"
#include "pipeline/schedule/placement.h"

namespace train_gpt {

struct Schedule;
struct Collective;

// The measure by which schedules are compared: the time from first to last action, or the longest time that any rank is
// in use.
enum class Objective : std::uint8_t { makespan, span };

// Bytes of the messages between a model stage and the one before it.
struct MessageSize {
  double activation = 0.0, gradient = 0.0;
  bool operator==(const MessageSize&) const = default;
};

// Milliseconds. `forward`, `input`, `weight` (F, I, W; B costs I + W) are for one micro-batch through the share of one
// rank and hold
//   one value:   every rank; a virtual stage ("chunk") takes 1/v of it;
//   p values:    one per rank; a chunk takes 1/v of it (bidirectional: one per model stage, for both copies);
//   p*v values:  one per virtual stage, undivided.
struct Costs {
  std::vector<double> forward = {1.0};
  std::vector<double> input = {1.0};
  std::vector<double> weight = {1.0};
  std::vector<double> fused = {};  // an F&B pair, counted where its F runs; empty: the two run one after the other
  // Links: one value for all of them; or one per link r between ranks r and r+1, where r = p-1 leads back to rank 0 and
  // may be left out if nothing uses it; or all links upwards (r to r+1), then all downwards (r+1 to r): 1, p-1, p,
  // 2(p-1) or 2p values.
  std::vector<double> latency = {0.0};     // of one hop, never divided
  std::vector<double> bandwidth = {};      // of one direction, GB/s (10^9 bytes); empty: infinite
  double message_bytes = 0.0;              // one activation or one gradient, (b, T, C); 0: unknown
  std::vector<MessageSize> messages = {};  // [model stage], where they differ; empty: all are of message_bytes
  double send_slowdown = 0.0;  // while a rank's message is on its channel, its actions take 1 + this times as long

  bool has_links() const { return latency != std::vector<double>{0.0} || !bandwidth.empty(); }
  bool operator==(const Costs&) const = default;
};

// One message from one virtual stage to a neighbour on another rank.
struct Hop {
  double latency = 0.0;   // milliseconds
  double transfer = 0.0;  // milliseconds during which the message occupies its channel
  double bytes = 0.0;     // 0: unknown

  double total() const { return latency + transfer; }
};

// Costs, spelled out per virtual stage of one placement.
struct StageCosts {
  std::vector<double> forward, input, weight;  // [virtual stage], milliseconds
  std::vector<double> fused;                   // [virtual stage], or empty
  // [virtual stage]: activations from the previous stage to it, gradients from it to the previous stage. Free within a
  // rank; empty: free everywhere.
  std::vector<Hop> activation, gradient;
  double send_slowdown = 0.0;  // see Costs

  // The cost of the message of a stage's F, I or B on its way to the stage that takes it.
  Hop hop_after(Op op, int stage, const Placement& placement) const;
};

// Latency in milliseconds and bandwidth in GB/s (0: infinite) between two of `ranks` ranks. Throws
// std::invalid_argument if `costs` have no value for that link, or a number of values not listed above.
struct LinkCost {
  double latency = 0.0, bandwidth = 0.0;
  bool operator==(const LinkCost&) const = default;
};
LinkCost link_cost(const Costs& costs, int ranks, int source, int destination);

// Fills in the hops from the links of `costs`. Throws std::invalid_argument if the placement uses a link without cost.
void set_hops(StageCosts& stages, const Costs& costs, const Placement& placement);

// Throws std::invalid_argument if a list has another length than 1, p or p*v, or a value is negative or not finite.
StageCosts stage_costs(const Costs& costs, const Placement& placement);

struct Interval {
  double start = 0.0;  // milliseconds since the first action could start
  double end = 0.0;
};

// [rank][position in that rank's list], milliseconds.
using ActionDurations = std::vector<std::vector<double>>;

struct SimulateOptions {
  bool intervals = true;                       // start and end of every action (16 bytes each)
  bool channels = true;                        // messages, bytes and longest queue of every channel
  bool bound_and_memory = true;                // lower_bound, peak_live and peak_pending_weight
  bool critical_path = false;                  // the chain of actions that makes the makespan
  double weight_memory = 1.0;                  // fraction of an activation that stays alive between I and W, 0 .. 1
  const ActionDurations* durations = nullptr;  // instead of the costs: what every single action took when measured
  // [rank]: what replicas exchange beside the actions (pipeline/simulate/collectives.h)
  const std::vector<std::vector<Collective>>* collectives = nullptr;
};

struct ChannelLoad {
  Channel channel;
  std::int64_t messages = 0;
  double bytes = 0.0;
  // Most messages that needed a slot at one time, with unlimited slots: from the end of the action that sends a message
  // to the end of the one that takes it. check_schedule() takes its slot counts from here.
  int longest_queue = 0;
};

struct ActionPosition {
  int rank = 0;
  int position = 0;
};

struct Simulation {
  double makespan = 0.0;     // milliseconds, first start to last end
  double step = 0.0;         // since the first action, or collective, could start, to the end of the last of both
  double span = 0.0;         // largest (last end - first start) of a rank, milliseconds
  double ideal = 0.0;        // largest busy time of a rank, milliseconds
  double bubble = 0.0;       // 1 - busy / (p * makespan), busy of all ranks together
  double bubble_span = 0.0;  // 1 - ideal / span: the zero-bubble papers' measure
  // No order of the same actions on the same ranks is faster: the longest chain of dependencies, or the busiest rank
  // with its earliest possible start before it and what must follow its last backward elsewhere after it.
  double lower_bound = 0.0;

  std::vector<double> busy;         // [rank], milliseconds
  std::vector<double> first_start;  // [rank]
  std::vector<double> last_end;     // [rank]

  // [rank], in units of one micro-batch through one rank's share: +1/v at F, -(1 - weight_memory)/v at I, the rest at
  // W.
  std::vector<double> peak_live;
  std::vector<double> peak_pending_weight;  // [rank], same unit: weight gradients between I and W

  std::int64_t messages = 0;  // that cross ranks
  double bytes = 0.0;

  std::vector<std::vector<Interval>> intervals;  // [rank][position], if asked for
  std::vector<ChannelLoad> channels;             // if asked for; those that carry a message, sorted
  std::vector<ActionPosition> critical_path;     // if asked for; first action first
};

// Throws std::invalid_argument if the lists block each other (the message says what each rank waits for) or name a
// stage or micro-batch that does not exist or is not the rank's. It does not check that they are complete:
// check_schedule() does.
Simulation simulate(const Schedule& schedule, const Costs& costs, const SimulateOptions& options = {});
Simulation simulate(const Schedule& schedule, const StageCosts& costs, const SimulateOptions& options = {});

}  // namespace train_gpt
