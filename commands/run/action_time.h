// Time that actions take beyond their work: delays that tests inject, and all of it on the timed device.
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "kernels/injected_delays.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// Milliseconds of every action of one rank's list, as the simulator counts them. The time of a fused pair is divided
// between its parts in proportion to their time alone.
std::vector<double> action_durations(const Schedule& schedule, const StageCosts& costs, int rank);

// The delays of this rank's actions (not messages) by --inject-delay.
class ActionDelays {
 public:
  ActionDelays(const DelaySpec& spec, int rank);

  bool any() const { return here_ && (spec_.action > 0 || spec_.step > 0); }
  double next();  // milliseconds

 private:
  DelaySpec spec_;
  bool here_;
  std::mt19937_64 random_;
};

// Takes `ms` milliseconds, to a few microseconds: sleeps in slices of 0.15 milliseconds, calls `progress` between them
// to move messages, and spins at the end.
void spend(double ms, const std::function<void()>& progress);

}  // namespace train_gpt
