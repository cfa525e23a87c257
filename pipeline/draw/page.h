// One schedule as a page to learn from: self-contained HTML that steps through time, shows what an action waits for and
// what waits for it, and how many activations every rank holds.
#pragma once

#include <string>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// A page with more actions is slow in a browser.
inline constexpr std::size_t kMostActionsOnPage = 20'000;

// `simulation` must have its intervals. weight_memory: as in SimulateOptions.
std::string schedule_page(const Schedule& schedule, const Simulation& simulation, double weight_memory);

}  // namespace train_gpt
