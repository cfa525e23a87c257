// The parts of choosing a plan that look for schedules and weigh memory by unit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipeline/planner/choose.h"

namespace train_gpt {

// --schedule auto: every named schedule that is legal, with one to four stages per rank, never two parameter copies nor
// more stages than units. Throws std::invalid_argument where lists per stage are given.
std::vector<Schedule> named_candidates(const ChoiceRequest& request);

// The messages between the model stages of the request's partition; a head that is cut sends more than layers do.
std::vector<MessageSize> message_sizes(const PlanRequest& request);

// The result of the search (pipeline/search/search.h) for the placement, costs and memory of a choice. Nothing if no
// order fits.
struct FoundSchedule {
  Schedule schedule;
  std::string reason;
  double makespan = 0;  // with the costs of the choice that it was searched for
};
std::optional<FoundSchedule> search_like(const ChoiceRequest& request, const Choice& choice);

// Milliseconds of a step of the best order that a few plain rules build for the same.
std::optional<double> makespan_by_rules(const ChoiceRequest& request, const Choice& choice);

// Bytes that a unit adds to a rank that holds it: parameters, gradients and moments, and its activations for every
// micro-batch that is live at once.
struct UnitMemory {
  std::vector<std::vector<double>> bytes;  // [model stage][unit]
};
UnitMemory unit_memory(const PlanRequest& request);  // schedule, head and batch count; the partition does not

// Sum over the units of every rank under the request's partition.
std::vector<double> counted_bytes(const PlanRequest& request, const UnitMemory& memory);

}  // namespace train_gpt
