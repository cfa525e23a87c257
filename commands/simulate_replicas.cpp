#include "commands/simulate_replicas.h"

#include <algorithm>
#include <stdexcept>

#include "commands/run/setup.h"
#include "model/config.h"
#include "pipeline/draw/table.h"
#include "pipeline/plan/plan_bytes.h"
#include "pipeline/plan/replica_collectives.h"

namespace train_gpt {
namespace {

ModelConfig model_of(const Options& options) {
  const ModelOptions& wanted = options.model;
  ModelConfig model = preset(wanted.preset);
  if (wanted.layers) {
    model.layers = *wanted.layers;
    model.heads = *wanted.heads;
    model.hidden = *wanted.hidden;
  }
  model.vocab = wanted.vocab.value_or(model.vocab);
  model.max_seq_len = std::max(model.max_seq_len, options.batch.seq_len);
  check(model);
  return model;
}

// Of the model, cut uniformly: what is exchanged depends on its sizes alone.
Plan plan_of(const Options& options, const Schedule& schedule) {
  PlanRequest request;
  request.model = model_of(options);
  const int depth = schedule.placement.depth(), units = unit_count(request.model);
  if (units < depth) {
    throw std::invalid_argument(schedule.name + ": the model has " + std::to_string(units) + " units, fewer than the " +
                                std::to_string(depth) + " stages of " + std::to_string(schedule.ranks) +
                                " ranks; give --model or --layers with more of them");
  }
  const int d = options.batch.data_parallel;
  const int directions = schedule.placement.kind == Placement::Kind::bidirectional ? 2 : 1;
  request.batch = {.rows = options.batch.micro_batch_size,
                   .seq_len = options.batch.seq_len,
                   .micro_batches = schedule.micro_batches,
                   .replicas = d,
                   .groups = d * directions};
  request.schedule = schedule;
  request.partition = uniform_partition(request.model, depth);
  request.precision = options.device.precision.value_or(Precision::fp32);
  request.zero = options.batch.zero;
  return make_plan(request);
}

}  // namespace

bool has_replicas(const Options& options) { return options.costs.cluster_given && options.batch.data_parallel > 1; }

SharedSchedule simulate_replicas(const Options& options, const Schedule& schedule, const StageCosts& costs) {
  const BatchOptions& batch = options.batch;
  const Collectives collectives =
      replica_collectives(plan_of(options, schedule), replica_links(options, schedule.ranks));
  double most = 0;
  for (const std::vector<Collective>& of_rank : collectives) {
    double sent = 0;
    for (const Collective& one : of_rank) sent += one.bytes;
    most = std::max(most, sent);
  }
  const SharedStep step = with_collectives(schedule, costs, collectives);
  return {step, schedule.name + ": with " + std::to_string(batch.data_parallel) + " replicas, ZeRO " +
                    std::to_string(batch.zero) + ", a step takes " + with_digits(step.end, 7) +
                    " ms, of which reductions and gathers hold it up " + with_digits(100 * step.share(), 3) + "%" +
                    "; a rank sends up to " + format_bytes(static_cast<std::int64_t>(most)) + " for them"};
}

}  // namespace train_gpt
