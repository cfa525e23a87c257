// simulate --expect 'makespan<=27,peak<=4': conditions on a schedule, for marking exercises.
#pragma once

#include <string>
#include <vector>

#include "pipeline/simulate/simulator.h"

namespace train_gpt {

struct Expectation {
  std::string text;      // "makespan<=27"
  std::string figure;    // makespan, span, bubble, span-bubble, peak, pending, messages
  std::string relation;  // <=, <, >=, > or =
  double value = 0;      // ms, fraction, micro-batches, messages
};

// Throws std::invalid_argument naming --expect, the part that is wrong and what would be right.
std::vector<Expectation> parse_expectations(const std::string& text);

// True if the simulation meets the expectation, up to rounding; and the line that says so: "makespan<=27: yes, 26.5".
bool is_met(const Expectation& expectation, const Simulation& simulation);
std::string verdict(const Expectation& expectation, const Simulation& simulation);

}  // namespace train_gpt
