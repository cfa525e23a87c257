// Why ranks were idle in a measured step, by telescoping simulations of the same lists with free communication:
//
//   1. every operation takes the mean of its stages' means  what is idle then is due to the schedule
//   2. every stage takes its own mean of each operation     what that adds is imbalance between the stages
//   3. every action takes what it took                      what that adds is jitter
//   4. the measured step                                    what that adds is exposed communication: waiting for
//                                      messages on their way, for send slots, for reductions within the list
//
// The idle time of a rank is the makespan less its busy time; the parts are differences between consecutive ones, so
// they sum to the measured idle time. A part may be negative: a slow rank has less idle time than equal ranks would
// have, and the others have more.
#pragma once

#include <array>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// Milliseconds, of one rank or summed over ranks.
struct IdleParts {
  double schedule = 0;
  double imbalance = 0;
  double jitter = 0;
  double communication = 0;

  double sum() const { return schedule + imbalance + jitter + communication; }
};

struct IdleTime {
  std::vector<IdleParts> ranks;
  IdleParts all;                     // summed over ranks
  double available = 0;              // ranks * measured makespan: all.sum() / available is the bubble
  std::array<double, 4> makespan{};  // of the four stages above, milliseconds
};

// `measured` has makespan, busy times and the intervals of all actions. Throws std::invalid_argument if these are not
// of the schedule's lists.
IdleTime explain_idle(const Schedule& schedule, const Simulation& measured);

// The mean duration of each operation of each virtual stage, [Op][virtual stage]; 0 where there is none.
std::array<std::vector<double>, 4> stage_means(const Schedule& schedule, const Simulation& measured);

}  // namespace train_gpt
