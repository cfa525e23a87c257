// A measured step beside its prediction: how every rank spent its time, and why it was idle.
#pragma once

#include <string>
#include <vector>

#include "pipeline/measure/idle.h"
#include "pipeline/measure/measured_timeline.h"

namespace train_gpt {

// Milliseconds of one rank.
struct RankAnalysis {
  double busy = 0;        // running actions
  double waiting = 0;     // for messages and send slots, from the pipeline's first action on
  double idle = 0;        // makespan - busy: waiting, and the time before and after the rank's own list
  IdleParts parts;        // of idle; they sum to it
  double reduction = 0;   // R: when this rank did nothing but a reduction
  double update = 0;      // U: clipping and the optimizer
  double post_flush = 0;  // from the pipeline's last action to the end of this rank's update: R, norm and U
};

struct StepAnalysis {
  std::int64_t step = 0;
  Simulation measured;
  Simulation predicted;
  IdleTime idle;
  std::vector<RankAnalysis> ranks;
};

StepAnalysis analyse(const Schedule& schedule, const MeasuredStep& step, const Simulation& predicted);

// One line per rank and one for all of them, where idle time is given in per cent of ranks times makespan: their sum is
// the bubble. The middle of more than `most_rows` ranks is left out.
std::string analysis_table(const StepAnalysis& analysis, int most_rows);

// "123.4 ms from first to last action (predicted 121.0), bubble 27.4% (predicted 27.3%), span bubble ..".
std::string analysis_summary(const StepAnalysis& analysis);

}  // namespace train_gpt
