// Aligned tables for terminals.
#pragma once

#include <string>
#include <vector>

#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// rows[0] is the header. The first column is flush left, the others flush right. Every line ends in a newline.
std::string draw_table(const std::vector<std::vector<std::string>>& rows);

// "%.*g" with `digits` digits.
std::string with_digits(double value, int digits);
std::string percent(double fraction);  // 0.2727 -> "27.27%"

struct ComparedSchedule {
  std::string name;
  int chunks = 1;
  const Simulation* simulation = nullptr;
};

// One line per schedule: time, both bubbles, lower bound, memory, messages, slots. A * marks the best one: the smallest
// makespan, or the smallest span.
std::string compare_table(const std::vector<ComparedSchedule>& schedules, bool by_span);

// One line per rank, and one per channel if the simulation kept them. The middle of more than `most_rows` is left out.
std::string rank_table(const Simulation& simulation, int most_rows);
std::string channel_table(const Simulation& simulation, int most_rows);

// A one-line summary of the critical path.
std::string critical_path_summary(const Schedule& schedule, const Simulation& simulation);

}  // namespace train_gpt
