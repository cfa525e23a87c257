#include "pipeline/measure/clock.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace train_gpt {

ClockOffset measure_clock_offset(Communicator& world, const std::function<double()>& now_ms, int rounds) {
  std::vector<double> mine, reference(2 * static_cast<std::size_t>(rounds), 0.0);
  for (int round = 0; round < rounds; ++round) {
    mine.push_back(now_ms());
    world.barrier();
    mine.push_back(now_ms());
  }
  if (world.rank() == 0) reference = mine;
  world.one_hot_sum(reference);
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < mine.size(); i += 2) {
    least = std::max(least, mine[i] - reference[i + 1]);
    most = std::min(most, mine[i + 1] - reference[i]);
  }
  if (world.rank() == 0) least = most = 0;
  std::vector<double> errors(static_cast<std::size_t>(world.size()), 0.0);
  errors[static_cast<std::size_t>(world.rank())] = (most - least) / 2;
  world.one_hot_sum(errors);
  return {.ms = (least + most) / 2, .error_ms = *std::max_element(errors.begin(), errors.end())};
}

}  // namespace train_gpt
