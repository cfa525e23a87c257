// Orders for scarce memory, micro-batch by micro-batch: each enters as a train enters a single line, at the first
// moment from which its whole way, down with F and back with I, finds every rank free when it arrives and memory for as
// long as it stays. W fills the gaps. The memory taken is the time that a micro-batch stays, over the time from one to
// the next. Here the first is the least possible (or a little more, by `slack`), and the second may vary: where a
// pattern of one period (Timetable) has to leave 8 slots between V-shaped ways because 7 do not fit, trains follow
// after 6 and 8 slots in turn.
#pragma once

#include <optional>

#include "pipeline/search/problem.h"

namespace train_gpt::search {

struct TrainPolicy {
  double slack = 0;    // the most that a micro-batch waits on its way in all, in actions of mean length
  bool slots = false;  // plan as if all actions took the same time and messages none: ways then fit side by side
};

// Empty if a micro-batch finds no way in within many attempts.
std::optional<Order> schedule_trains(const Problem& problem, const TrainPolicy& policy);

}  // namespace train_gpt::search
