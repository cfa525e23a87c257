// The parts of choosing a plan that look for schedules and weigh memory by unit.
#pragma once

#include <string>
#include <vector>

#include "pipeline/choose.h"

namespace train_gpt {

// --schedule auto: for every placement that is allowed (one to four stages per rank in a loop, or a V; never two
// parameter copies, never more stages than units) what the search finds with the costs of the fastest cut.
struct FoundSchedule {
  Schedule schedule;
  std::string reason;
};
std::vector<FoundSchedule> search_candidates(const ChoiceRequest& request);

// What a unit adds to a rank that holds it: parameters, gradients and moments, and its activations for every
// micro-batch that is live at once.
struct UnitMemory {
  std::vector<std::vector<double>> bytes;  // [model stage][unit]
};
UnitMemory unit_memory(const PlanRequest& request);  // schedule, head and batch count; the partition does not

// Sum over the units of every rank under the request's partition.
std::vector<double> counted_bytes(const PlanRequest& request, const UnitMemory& memory);

// Choice for one schedule (pipeline/choose.cpp).
Choice choose_for_schedule(const ChoiceRequest& request, const Schedule& schedule);

}  // namespace train_gpt
