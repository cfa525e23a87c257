// From options to a plan: the steps that train, evaluate and plan have in common.
#pragma once

#include "commands/cli/options.h"
#include "commands/run/session.h"
#include "pipeline/plan/execution_plan.h"
#include "pipeline/planner/choose.h"
#include "pipeline/train/trainer.h"

namespace train_gpt {

// The file that --init names: itself, or model.bin in the folder of a run or a checkpoint; for a run that is not over,
// that of its newest checkpoint. Throws std::invalid_argument.
std::string init_model_file(const Options& options);
// The file that rank 0 finds, for all ranks, since the newest checkpoint of a living run may change at any moment.
// Collective; throws as Session::together. Empty: --init is random.
std::string agreed_init_file(Session& session, const Options& options);

// Sizes from --init FILE, or --model, or --layers --heads --hidden; the vocabulary from --vocab, else the token file's
// manifest, else 50257. Throws std::invalid_argument.
ModelConfig model_config(const Options& options);

// Throws std::invalid_argument when --seq-len exceeds the positions that the model knows.
void check_positions(const Options& options, const ModelConfig& model);

// The schedule that --schedule or --schedule-file names, for p ranks; empty for auto. Throws std::invalid_argument.
std::optional<Schedule> named_schedule(const Options& options, int p);

// b, T, m, d and G, which is d, or 2d under bidirectional schedules, unless given. No schedule:
// --micro-batches counts.
BatchShape batch_shape(const Options& options, const std::optional<Schedule>& schedule);

// The choices that --schedule, --partition, --recompute and --memory-limit leave open, for choose(). `base` has sizes
// and batch.
ChoiceRequest choice_request(const Options& options, const PlanRequest& base, std::optional<Schedule> schedule, int p,
                             CostModel costs);

// Throws std::invalid_argument if a rank of the chosen plan needs more than the memory limit (0: none), and names what
// would fit.
void check_memory_limit(const Plan& plan, const ChoiceRequest& request, std::int64_t limit);

// Throws if the ranks of one host together need more than its memory (0: not known).
void check_host_memory(const Plan& plan, const std::vector<int>& ranks, std::int64_t bytes);

// Throws if a rank needs more than its GPU has for a plan.
void check_gpu_memory(const Plan& plan, std::int64_t bytes);

// For people: how many of a GPU's multiprocessors messages may hold, and how many products leave to them.
std::string multiprocessor_line(const Plan& plan);

OptimizerSettings optimizer_settings(const Options& options);

// Buffers of gradients of a schedule that never flushes: 1 if no update has to wait for other ranks.
int gradient_buffers(const Options& options, const PlanRequest& request);

// --cost-* for so many ranks of a pipeline, with the links of a cluster where they are given.
Costs given_costs(const Options& options, int ranks);

// [rank]: of the ring of its replicas in that cluster; empty: none was given, or there is one replica.
std::vector<LinkCost> replica_links(const Options& options, int ranks);

// Everything but the partition and the costs (and, without one, the schedule).
PlanRequest plan_request(const Options& options, const ModelConfig& model, const std::optional<Schedule>& schedule,
                         const Device& device);

// The plan of one micro-batch of one replica on p ranks, with everything recomputed that --recompute allows: no plan
// for these options needs less memory, and units can be measured within it.
Plan smallest_plan(const Options& options, const ModelConfig& model, int p, const Device& device);

// Collective; throws std::invalid_argument, as Session::together, naming the tensor of `source` that holds a value that
// is not finite.
void require_finite(Session& session, Trainer& trainer, const std::string& source);

// For people: the meaning of the words in the tables of a plan and its prediction.
extern const char* const kPlanWords;

// One line for people: sizes of the model and of a step.
std::string model_line(const ModelConfig& model, const BatchShape& batch);

}  // namespace train_gpt
