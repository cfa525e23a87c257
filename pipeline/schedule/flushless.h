// Schedules that never flush: one endless list, of which a Schedule holds the steps between a fill of the pipe and the
// next drain (Schedule::steps). Micro-batch number t m + i is the i-th of step t.
//
// This is possible because a step computes with parameters that lack the last update (or, in pipedream,
// several): while the gradients of a step are still on their way, the next one has begun.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace train_gpt {

struct FlushlessRequest {
  std::string name;       // as --schedule takes it
  int ranks = 1;          // p
  int micro_batches = 1;  // m, of one step
  int warmup_factor = 1;  // w, --warmup-factor of 2bw: 1, or 2 where messages are slow
  int steps = 1;          // from fill to drain
};

// The steps of a schedule that stands for a run of any length: the pipe is full in the middle ones.
inline constexpr int kPlannedSteps = 8;

const std::vector<std::string>& flushless_names();
bool is_flushless(const std::string& name);
bool takes_warmup_factor(const std::string& name);

// pipedream: every backward is followed by an update, which works on the newest parameters. In 2bw there is one update
// per step.
bool stashes_weights(const std::string& name);
// Versions of the parameters that a rank keeps beside the newest: p-1-rank in pipedream, 1 in 2bw, else 0.
int older_versions(const Schedule& schedule, int rank);

// As in pipeline/schedule/catalog.h.
std::optional<std::string> violation(const FlushlessRequest& request);
Schedule make_schedule(const FlushlessRequest& request);

}  // namespace train_gpt
