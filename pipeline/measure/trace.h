// Measured steps as a trace for ui.perfetto.dev or chrome://tracing (Chrome's JSON trace event format).
#pragma once

#include <ostream>
#include <vector>

#include "pipeline/measure/measured_timeline.h"

namespace train_gpt {

// One process per rank. Its thread "actions" has the actions (with step, virtual stage and micro-batch), the waits
// before them that last at least kShortestWaitMs, and U; its thread "reductions" has R from its issue to its end,
// after the actions. Every message is a flow arrow from the action that produced it to the one that consumed it. Time
// 0 is the first action of the first step.
inline constexpr double kShortestWaitMs = 0.001;
void write_trace(std::ostream& out, const Schedule& schedule, const std::vector<MeasuredStep>& steps);

}  // namespace train_gpt
