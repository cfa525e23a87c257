// From options to a plan: the steps that train, evaluate and plan have in common.
#pragma once

#include "commands/options.h"
#include "pipeline/plan.h"
#include "pipeline/trainer.h"

namespace train_gpt {

// Sizes from --init FILE, or --model, or --layers --heads --hidden; the vocabulary from --vocab, else the token file's
// manifest, else 50257. Throws std::invalid_argument.
ModelConfig model_config(const Options& options);

// The schedule that --schedule or --schedule-file names, for p ranks, validated. Throws std::invalid_argument.
Schedule chosen_schedule(const Options& options, int p);

// b, T, m, d and G. Bidirectional schedules force two accumulation groups.
BatchShape batch_shape(const Options& options, const Schedule& schedule);

// --partition: units per stage as given, or cut uniformly.
Partition chosen_partition(const Options& options, const ModelConfig& model, const Schedule& schedule);

// Throws std::invalid_argument with a suggestion when a rank of the plan needs more than `limit` bytes (0: no limit).
void check_memory_limit(const Plan& plan, std::int64_t limit);

OptimizerSettings optimizer_settings(const Options& options);

// Everything but the partition and the costs.
PlanRequest plan_request(const Options& options, const ModelConfig& model, const Schedule& schedule,
                         const Device& device);

}  // namespace train_gpt
