// Computes when messages are under way, from the ends of the actions that send them and the times of their hops.
#include <algorithm>
#include <stdexcept>

#include "pipeline/draw/timeline.h"
#include "pipeline/schedule/channels.h"
#include "pipeline/schedule/schedule.h"

namespace train_gpt {

void add_messages(Timeline& timeline, const Schedule& schedule, const Simulation& simulation, const StageCosts& costs) {
  if (simulation.intervals.size() != schedule.lists.size())
    throw std::logic_error("add_messages: the simulation of " + schedule.name + " kept no intervals");
  const ChannelTable table(schedule.placement);
  std::vector<double> channel_free(table.channels().size(), 0.0);
  bool any = false;
  timeline.messages.assign(schedule.lists.size(), {});
  for (std::size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    for (std::size_t i = 0; i < schedule.lists[rank].size(); ++i) {
      const Action& action = schedule.lists[rank][i];
      const int channel = table.messages(action).produces;
      if (channel < 0) continue;
      const Hop hop = costs.hop_after(action.op, action.stage, schedule.placement);
      const double end = simulation.intervals[rank][i].end;
      // The messages of a channel follow each other, and one rank alone sends on it.
      double& free = channel_free[channel];
      free = std::max(end, free) + hop.transfer;
      const bool forward = action.op == Op::forward;
      const Placement::VirtualStage& stage = schedule.placement.stages[action.stage];
      timeline.messages[rank].push_back({.sent = end,
                                         .arrives = free + hop.latency,
                                         .destination = table.channels()[channel].destination,
                                         .stage = forward ? stage.next : stage.previous,
                                         .micro_batch = action.micro_batch,
                                         .is_gradient = !forward});
      any = any || timeline.messages[rank].back().arrives > end;
    }
  }
  if (!any) timeline.messages.clear();
}

}  // namespace train_gpt
