// Tells, while a run goes on, that a rank is slower than it should be, and what that costs the whole job.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"
#include "pipeline/train/measurement.h"

namespace train_gpt {

class Stragglers {
 public:
  // ranks: of the job, pipelines one after the other. The schedule outlives this.
  Stragglers(const Schedule& schedule, StageCosts planned, int ranks);

  // After every step, the times of all ranks of the job. A line, once for each rank, when it was slower than the median
  // of its peers by 15% or more for 20 steps in a row; slow is what a rank's actions took over what was planned. Empty:
  // nothing is to be told.
  std::string add(std::span<const RankTimes> times);

 private:
  static constexpr double kSlow = 1.15;
  static constexpr int kSteps = 20;
  std::string told(std::size_t rank, const std::vector<double>& slowness, double usual) const;

  const Schedule& schedule_;
  StageCosts planned_;
  std::vector<double> planned_busy_;  // [rank of a pipeline]
  std::vector<int> slow_steps_;       // [rank of the job], in a row
  std::vector<char> told_;
};

}  // namespace train_gpt
