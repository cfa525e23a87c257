// Orders for scarce memory, micro-batch by micro-batch: each enters as a train enters a single line, at the first
// moment from which its whole way, down with F and back with I, finds every rank free when it comes there and memory
// for as long as it stays. W takes what gaps there are. What costs memory is the time that a micro-batch stays, over
// the time from one to the next; here the first is the least there is (or that and a little slack), and the second need
// not be the same for all: where a pattern of one period (Timetable) has to leave 8 slots between V-shaped ways because
// 7 do not fit, trains come after 6 and 8 in turn.
#pragma once

#include <optional>

#include "pipeline/search/problem.h"

namespace train_gpt::search {

struct TrainPolicy {
  double slack = 0;    // how long a micro-batch may wait on its way in all, in actions of mean length
  bool slots = false;  // as if all actions took one and the same time, and messages none: ways then fit side by side
};

// Nothing if a micro-batch finds no way in within many attempts.
std::optional<Order> schedule_trains(const Problem& problem, const TrainPolicy& policy);

}  // namespace train_gpt::search
