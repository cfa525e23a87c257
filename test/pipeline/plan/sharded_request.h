// A model of 24 units over replicas that share their state out.
#pragma once

#include <string>

#include "pipeline/plan/execution_plan.h"
#include "pipeline/schedule/catalog.h"

namespace train_gpt::test {

inline PlanRequest request_of(const std::string& schedule, int p, int d, int zero, int chunks = 0) {
  const ModelConfig model{.layers = 11, .heads = 2, .hidden = 128, .vocab = 131, .max_seq_len = 16};
  PlanRequest request;
  request.model = model;
  request.batch = {.rows = 1, .seq_len = 16, .micro_batches = 8, .replicas = d, .groups = d};
  request.schedule = make_schedule({.name = schedule, .ranks = p, .micro_batches = 8, .chunks = chunks});
  request.batch.groups = d * request.directions();
  request.partition = uniform_partition(model, request.schedule.placement.depth());
  request.zero = zero;
  return request;
}

}  // namespace train_gpt::test
