// Reports during a run that a rank is slower than planned, and what that costs the whole job.
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

  // Takes the times of all ranks of the job after every step. Returns a line, once for each rank, when it was slower
  // than the median of its peers by 15% or more for 20 steps in a row; slowness is the time of a rank's actions over
  // the planned time. Empty: nothing to report.
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
