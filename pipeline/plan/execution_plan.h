// The plan: everything about a training run that is decided before it starts. From the schedule follow, per rank, how
// many activations, pending weight gradients and messages are alive at once; from the model their bytes. All memory is
// allocated from this plan before step 0 and never grows. Nothing here touches a device or another rank: every rank
// computes the plans of all ranks from the same inputs and gets the same answer.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/stage.h"
#include "pipeline/plan/partition.h"
#include "pipeline/plan/sections.h"
#include "pipeline/plan/tied_sums.h"
#include "pipeline/plan/windows.h"
#include "pipeline/schedule/channel.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

struct BatchShape {
  std::int64_t rows = 4;       // b, of one micro-batch
  std::int64_t seq_len = 256;  // T
  int micro_batches = 8;       // m, per step and replica
  int replicas = 1;            // d
  int groups = 1;              // G, of the whole step: see PlanRequest::local_groups

  std::int64_t micro_batch_tokens() const { return rows * seq_len; }
  std::int64_t step_rows() const { return rows * micro_batches * replicas; }
  std::int64_t step_tokens() const { return step_rows() * seq_len; }
};

// For people and files: "1", "8 in a binary tree" or "3 in rank order" (groups).
std::string order_of_sums(const BatchShape& batch);

struct PlanRequest {
  ModelConfig model;
  BatchShape batch;
  Schedule schedule;    // already checked
  Partition partition;  // units per model stage
  HeadForm head = HeadForm::streamed;
  std::vector<bool> recompute;  // per unit of the model; empty: none
  Precision precision = Precision::fp32;
  OptimizerKind optimizer = OptimizerKind::adamw;
  std::int64_t workspace_bytes = 0;              // Device::workspace_bytes for these sizes
  HeadChunks head_chunks = HeadChunks::for_cpu;  // Device::head_chunks
  Costs costs;                                   // for the lengths of the message queues
  bool training = true;           // false: validation and generation alone, without gradients and optimizer state
  bool computes = true;           // false: the timed device, which needs message buffers and nothing else
  bool caches = false;            // generation keeps keys and values (where Device::rows_stand_alone)
  bool spare_parameters = false;  // --optimizer-step optimistic: a second parameter arena
  // --zero: each replica keeps of its own shard alone 1: optimizer state; 2: and gradients, once they are reduced; 3:
  // and parameters, except those that are gathered.
  int zero = 0;
  double reduction_ms = 0;  // timed device: of a rank's gradients over replicas
  // Instead, likewise: [rank], of the ring of its replicas; what they exchange takes the time of its bytes.
  std::vector<LinkCost> replica_links = {};
  std::int64_t memory_limit = 0;  // per rank; decides how often parameters are gathered; 0: none
  bool error_feedback = false;    // --delay-correction error-feedback: the update of the step before is kept
  int gradient_buffers = 2;       // without a flush: 1 where no update waits for the norm (so none can be skipped)

  // The schedule never flushes: its steps are kPlannedSteps of a run.
  bool flushless() const { return schedule.steps > 1; }
  int directions() const { return schedule.placement.kind == Placement::Kind::bidirectional ? 2 : 1; }
  // The order in which gradients are added. The M = d m micro-batches of a step form G contiguous groups: group g has
  // those from floor(M g / G) on, added in order. Groups are added in a balanced binary tree; each direction of each
  // replica owns an aligned subtree of local_groups() groups; sums over directions and replicas are the top of the
  // tree. G is then a power of two. If d is not, each replica is one group, added in rank order.
  int local_groups() const { return batch.groups / (batch.replicas * directions()); }
  // Micro-batches in those groups.
  int stage_micro_batches() const { return batch.micro_batches / directions(); }
  // Sums that wait in the tree while the last group is added, beside that group's own: log2(local_groups()).
  int pending_sums() const { return std::bit_width(static_cast<unsigned>(local_groups())) - 1; }
};

// Activation memory comes in pools of equal slots, one pool per lifetime (see model/stage.h) and size.
enum class Lifetime : std::uint8_t { forward_to_input, forward_to_weight, input_to_weight };

// An index for each lifetime, named as in StageBytes and StageSlots; -1: none.
struct IndexOfLifetime {
  int forward_to_input = -1;
  int forward_to_weight = -1;
  int input_to_weight = -1;

  int& operator[](Lifetime lifetime) {
    if (lifetime == Lifetime::forward_to_input) return forward_to_input;
    return lifetime == Lifetime::forward_to_weight ? forward_to_weight : input_to_weight;
  }
};

struct Pool {
  Lifetime lifetime = Lifetime::forward_to_input;
  std::int64_t slot_bytes = 0;
  int slots = 0;  // the most that are alive at once in the rank's list
};

// Equal buffers for messages between stages: a channel's receive or send slots, used in turn, or the hand-over between
// two neighbouring stages of one rank, which costs no copy.
struct Ring {
  enum class Kind : std::uint8_t { receive, send, hand_over };
  Kind kind = Kind::hand_over;
  int channel = -1;   // receive, send: index into ChannelTable::channels()
  int producer = -1;  // hand_over: the stage that writes (its F for an activation, its I or B for a gradient)
  Channel::Kind content = Channel::Kind::activation;
  int slots = 0;
  std::int64_t slot_bytes = 0;  // of its largest message: one channel may join several pairs of stages
};

struct StagePlan {
  int stage = 0;  // virtual stage
  StageShape shape;
  StageBytes bytes;
  MessageBytes before, after;     // over the stage's two boundaries
  IndexOfLifetime pools;          // of RankPlan::pools; -1: nothing to keep
  std::int64_t cache_offset = 0;  // of its bytes.cache in the rank's
};

// The memory that one action of a list works with: slots in its stage's pools, and the buffers of its input and output
// (-1: none, it reads tokens, computes the loss or is a W).
struct ActionPlan {
  IndexOfLifetime slots;
  int input_ring = -1;
  int input_slot = -1;
  std::int64_t input_bytes = 0;
  int output_ring = -1;
  int output_slot = -1;
  std::int64_t output_bytes = 0;
};

// The purpose of an allocation. A rank makes at most one for each use, except for pools.
enum class MemoryUse : std::uint8_t {
  parameters,
  working_parameters,        // in activation precision, where that is not fp32 or parameters are whole in windows only
  spare_parameters,          // --optimizer-step optimistic; without a flush: the versions before the newest
  spare_working_parameters,  // of those versions, where working_parameters are
  gradients,
  second_gradients,  // without a flush: of every other step
  gradient_shards,   // of the replica, where gradients are whole in windows only
  group_gradients,   // PlanRequest::pending_sums arenas
  first_moment,
  second_moment,
  last_update,  // PlanRequest::error_feedback
  pool,
  messages,
  cache,   // keys and values of generation
  tokens,  // and targets, losses, logits
  scratch,
  workspace,  // of the device
  norms       // and scalars of AdamW
};
inline constexpr std::size_t kMemoryUses = 18;

struct MemoryLine {
  MemoryUse use = MemoryUse::parameters;
  int pool = -1;     // of RankPlan::pools, where that is the use
  std::string name;  // for people
  std::int64_t bytes = 0;
};

// Consecutive micro-batches of a step.
struct MicroBatches {
  int first = 0;
  int end = 0;

  int count() const { return end - first; }
  bool contains(int mb) const { return first <= mb && mb < end; }
  void include(int mb);
};

struct RankPlan {
  int rank = 0;
  std::vector<StagePlan> stages;
  std::vector<Pool> pools;
  std::vector<Ring> rings;
  std::vector<ActionPlan> actions;     // parallel to the list of Plan::step_schedule()
  std::vector<ActionPlan> validation;  // parallel to the list of Plan::validation
  std::vector<ActionPlan> generation;  // parallel to the list of Plan::generation
  ArenaLayout layout;                  // arranged by stage
  std::vector<Section> sections;
  std::optional<GradientWindows> gradient_windows;    // --zero 2 and 3, where something is gained by them
  std::optional<ParameterWindows> parameter_windows;  // --zero 3, likewise
  std::int64_t scratch_bytes = 0;
  MicroBatches tokens;             // whose tokens the rank reads, in training or validation
  MicroBatches targets;            // whose targets it reads, if it has a part of the head
  MicroBatches losses;             // whose losses it computes, if it has the last part
  int batches = 1;                 // steps whose tokens are in memory: 2 where forwards of the next run ahead
  bool gives_logits = false;       // in generation
  std::vector<MemoryLine> memory;  // every allocation, in the order in which they are made
  std::int64_t copy_bytes = 0;     // copy_bytes_of() for the first replica, where there are copies
  int live_micro_batches = 0;      // most (stage, micro-batch) pairs between F and W at once

  const StagePlan& stage_plan(int stage) const;
  // Where gradients and working parameters lie.
  const ArenaLayout& gradient_layout() const { return gradient_windows ? gradient_windows->layout : layout; }
  const ArenaLayout& working_layout() const { return parameter_windows ? parameter_windows->layout : layout; }
  std::int64_t bytes_of(MemoryUse use) const;  // of all its lines
  std::int64_t total_bytes() const;
};

struct Plan {
  PlanRequest request;
  Schedule window;      // without a flush: window_of() the schedule
  Schedule validation;  // forward only, m micro-batches
  Schedule generation;  // forward only, one micro-batch
  std::vector<RankPlan> ranks;
  std::vector<TiedSum> tied_sums;           // over the ends of a tied embedding
  std::vector<std::int64_t> channel_bytes;  // [channel of ChannelTable]: of its largest message

  // The lists that ranks run for a step.
  const Schedule& step_schedule() const { return request.flushless() ? window : request.schedule; }
};

// How the head is run, for people and logs: "streamed" or "stored" by the stage that has all of it, or "25 shards on 3
// ranks".
std::string head_text(const Plan& plan);

// Throws std::invalid_argument when sizes contradict each other.
Plan make_plan(const PlanRequest& request);

// First and last unit of each virtual stage.
struct UnitRange {
  int first = 0;
  int last = 0;
};
std::vector<UnitRange> unit_ranges(const Placement& placement, const Partition& partition);

// True for the first of two mirrored ranks of a bidirectional schedule, and for every rank of another: one of each pair
// counts parameters and writes them.
bool is_first_of_mirrored(const PlanRequest& request, int rank);

// Bytes of the copy from which a rank writes its part of a checkpoint: all parameters and moments on the first replica;
// on the other replicas, under --zero, the parts that they alone have. Nothing else in the plan of a rank depends on
// the number of its replica.
std::int64_t copy_bytes_of(const PlanRequest& request, const RankPlan& rank, int replica);

// The table that is printed before training: a column per rank (equal ranks share one), a row per kind of memory.
std::string memory_table(const Plan& plan);

}  // namespace train_gpt
