#include "pipeline/plan/forward_only.h"

#include <algorithm>

#include "pipeline/schedule/channels.h"
#include "pipeline/schedule/list_builder.h"

namespace train_gpt {
namespace {

// The stage that a rank should run next: of those whose input is there, the deepest. -1: none.
int ready_stage(const Placement& placement, const std::vector<int>& stages, const std::vector<int>& done, int m) {
  int best = -1;
  for (const int s : stages) {
    const Placement::VirtualStage& stage = placement.stages[static_cast<std::size_t>(s)];
    const int next_micro_batch = done[static_cast<std::size_t>(s)];
    if (stage.copy != 0 || next_micro_batch == m) continue;
    const bool input_there = stage.previous < 0 || done[static_cast<std::size_t>(stage.previous)] > next_micro_batch;
    if (input_there && (best < 0 || stage.model_stage > placement.stages[static_cast<std::size_t>(best)].model_stage)) {
      best = s;
    }
  }
  return best;
}

}  // namespace

Schedule forward_only(const Schedule& training, int micro_batches, std::vector<int>* longest_queue) {
  const Placement& placement = training.placement;
  Schedule schedule(placement, micro_batches);
  schedule.name = "forward-only";
  for (Placement::VirtualStage& stage : schedule.placement.stages) {
    stage.first_micro_batch = 0;
    stage.last_micro_batch = stage.copy == 0 ? micro_batches : 0;
  }
  const ChannelTable table(placement);
  std::vector<int> waiting(table.channels().size(), 0);
  if (longest_queue != nullptr) longest_queue->assign(waiting.size(), 0);

  std::vector<std::vector<int>> stages;
  for (int r = 0; r < placement.ranks; ++r) stages.push_back(placement.stages_of(r));
  std::vector<int> done(placement.stages.size(), 0);  // micro-batches each stage has finished
  for (std::int64_t left = std::int64_t{placement.depth()} * micro_batches; left > 0;) {
    std::vector<int> chosen;  // decided for all ranks before any of them counts as done: one tick of time
    for (int r = 0; r < placement.ranks; ++r) {
      chosen.push_back(ready_stage(placement, stages[static_cast<std::size_t>(r)], done, micro_batches));
    }
    for (int r = 0; r < placement.ranks; ++r) {
      const int s = chosen[static_cast<std::size_t>(r)];
      if (s < 0) continue;
      const int micro_batch = done[static_cast<std::size_t>(s)]++;
      --left;
      schedule.rank(r).forward(s, micro_batch);
      const auto [consumes, produces] = table.messages({.op = Op::forward, .stage = s, .micro_batch = micro_batch});
      if (consumes >= 0) --waiting[static_cast<std::size_t>(consumes)];
      if (produces >= 0) {
        const auto channel = static_cast<std::size_t>(produces);
        ++waiting[channel];
        if (longest_queue != nullptr) (*longest_queue)[channel] = std::max((*longest_queue)[channel], waiting[channel]);
      }
    }
  }
  return schedule;
}

}  // namespace train_gpt
