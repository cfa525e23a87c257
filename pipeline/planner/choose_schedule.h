// The parts of choosing a plan that look for schedules and count memory by unit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipeline/planner/choose.h"

namespace train_gpt {

// --schedule auto: every legal named schedule with one to four stages per rank, one parameter copy and no more stages
// than units. Throws std::invalid_argument if lists per stage are given.
std::vector<Schedule> named_candidates(const ChoiceRequest& request);

// Bytes of the messages between the model stages of the request's partition; a head that is cut sends more than layers.
std::vector<MessageSize> message_sizes(const PlanRequest& request);

// The result of the search (pipeline/search/search.h) for the placement, costs and memory of a choice. Empty if no
// order fits.
struct FoundSchedule {
  Schedule schedule;
  std::string reason;
  double makespan = 0;  // with the costs of that choice
};
std::optional<FoundSchedule> search_like(const ChoiceRequest& request, const Choice& choice);

// Milliseconds of a step of the best order that a few plain rules build for the same.
std::optional<double> makespan_by_rules(const ChoiceRequest& request, const Choice& choice);

// Bytes that a unit adds to a rank that holds it: parameters, gradients and moments, and its activations for every
// micro-batch that is live at once.
struct UnitMemory {
  std::vector<std::vector<double>> bytes;  // [model stage][unit]
};
UnitMemory unit_memory(const PlanRequest& request);  // of schedule, head and batch, whatever the partition

// Sum over the units of every rank under the request's partition.
std::vector<double> counted_bytes(const PlanRequest& request, const UnitMemory& memory);

}  // namespace train_gpt
