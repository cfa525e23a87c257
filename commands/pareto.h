// simulate --pareto: time and memory of a step for every named schedule and for results of the search.
#pragma once

#include <string>
#include <vector>

namespace train_gpt {

struct MemoryAndTime {
  std::string name;
  double peak = 0;      // live activations of the rank that holds most
  double makespan = 0;  // ms
  bool best = false;    // nothing with as little memory is faster
};

// Sets `best`, and sorts by memory, then time.
void mark_best(std::vector<MemoryAndTime>& points);

std::string pareto_table(const std::vector<MemoryAndTime>& points);
// Time to the right, memory upwards; a line joins the best.
std::string pareto_svg(const std::vector<MemoryAndTime>& points, const std::string& title);

}  // namespace train_gpt
