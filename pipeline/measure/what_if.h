// The cost of a step if one thing were different: the recorded steps of a run simulated again with some of their
// durations changed. The definitions are those of the straggler study of Lin et al. ("Understanding Stragglers in Large
// Model Training Using What-if Analysis", OSDI 2025): S = T / T_ideal. Stages differ by design here, so slowness is
// measured over planned time, and "as the others" scales by it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

// One recorded step of one pipeline.
struct RecordedAction {
  double begin = 0, middle = 0, end = 0;  // ms; middle: of a B, between I and W
};
struct RecordedStep {
  std::int64_t step = 0;
  double ms = 0;                                          // of the whole step
  std::vector<std::vector<RecordedAction>> actions = {};  // [rank][position]
};

double makespan_of(const RecordedStep& step);  // from the first action's begin to the last one's end

struct RecordedSteps {
  Schedule schedule;
  StageCosts planned;  // links included
  std::vector<RecordedStep> steps;
};

// F, I and W of an action, in milliseconds (two of them of a B).
using Passes = std::array<double, 3>;

class WhatIf {
 public:
  // Throws std::invalid_argument if there are no steps, or if they are not of the schedule.
  explicit WhatIf(RecordedSteps recorded);

  const Schedule& schedule() const { return recorded_.schedule; }
  // The mean of the recorded steps, measured; and simulated from the durations of their actions.
  double measured_ms() const { return measured_ms_; }
  double replayed_ms() const { return replayed_ms_; }
  double whole_step_ms() const { return whole_step_ms_; }
  std::size_t steps() const { return recorded_.steps.size(); }

  // Returns the changed time of an action of a recorded step.
  using Change = std::function<Passes(std::size_t step, int rank, std::size_t position, Passes took)>;
  struct Changed {
    Change action = nullptr;  // null: as it was
    StageCosts links;         // with the changed hops
  };
  double makespan_if(const Changed& changed) const;
  // The changed durations of one recorded step, the middle one.
  ActionDurations durations_if(const Changed& changed) const;

  Changed unchanged() const { return {nullptr, links_}; }
  Changed every_rank_as_its_peers() const;
  Changed rank_as_its_peers(int rank) const;
  Changed last_stage_as_the_others() const;
  Changed link_free(int rank, int other) const;
  Changed without_jitter() const;

  // Measured over planned time of a rank's F, I and W; and of all of them together.
  const Passes& slowness(int rank) const { return slowness_[static_cast<std::size_t>(rank)]; }
  double slowness_of_all(int rank) const;
  // Mean times of the passes of a virtual stage, milliseconds.
  const Passes& stage_mean(int stage) const { return stage_means_[static_cast<std::size_t>(stage)]; }
  const StageCosts& links() const { return links_; }

 private:
  void take_durations();
  ActionDurations durations_of(std::size_t step, const Changed& changed) const;
  void measure_links();
  Passes factors_to_peers(int rank) const;
  Passes planned_of(const Action& action) const;

  RecordedSteps recorded_;
  std::vector<std::vector<std::vector<Passes>>> took_;  // [step][rank][position]
  std::vector<Passes> slowness_;                        // [rank]
  std::vector<Passes> stage_means_;                     // [virtual stage]
  StageCosts links_;
  double measured_ms_ = 0, replayed_ms_ = 0, whole_step_ms_ = 0;
};

}  // namespace train_gpt
