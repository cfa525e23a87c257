#include "pipeline/plan/plan_request.h"

#include <bit>
#include <stdexcept>

namespace train_gpt {
namespace {

// Accumulation groups have to fit micro-batches, replicas and directions: see PlanRequest::local_groups.
void check_groups(const PlanRequest& request) {
  const BatchShape& batch = request.batch;
  const int parts = batch.replicas * request.directions();
  const int most = batch.micro_batches * batch.replicas;
  if (batch.groups == parts) return;
  const std::string found = "--accumulation-groups " + std::to_string(batch.groups) + ": ";
  if (!std::has_single_bit(static_cast<unsigned>(batch.replicas))) {
    throw std::invalid_argument(found + "--data-parallel " + std::to_string(batch.replicas) +
                                " is no power of two and adds its replicas in rank order: leave the option out");
  }
  if (!std::has_single_bit(static_cast<unsigned>(batch.groups)) || batch.groups % parts != 0 || batch.groups > most) {
    const std::string directions = " directions of " + request.schedule.name;
    throw std::invalid_argument(found + "must be a power of two, a multiple of the " + std::to_string(parts) +
                                (request.directions() == 1 ? " of --data-parallel" : directions) +
                                ", and at most the " + std::to_string(most) + " micro-batches of a step");
  }
}

}  // namespace

void check_request(const PlanRequest& request) {
  const BatchShape& batch = request.batch;
  check_partition(request.partition, request.model, request.schedule.placement.depth());
  if (batch.seq_len > request.model.max_seq_len) {
    throw std::invalid_argument("--seq-len " + std::to_string(batch.seq_len) + " is longer than the model's " +
                                std::to_string(request.model.max_seq_len) +
                                " positions: lower it or raise --max-seq-len");
  }
  check_groups(request);
  if (request.zero > 2 && request.spare_parameters) {
    throw std::invalid_argument(
        "--zero 3 keeps no whole copy of the parameters, of which --optimizer-step optimistic needs two");
  }
}

}  // namespace train_gpt
