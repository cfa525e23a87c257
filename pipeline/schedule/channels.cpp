#include "pipeline/schedule/channels.h"

#include <algorithm>

#include "pipeline/schedule/schedule.h"

namespace train_gpt {

ChannelTable::ChannelTable(const Placement& placement)
    : forward_(placement.stages.size()), backward_(placement.stages.size()) {
  const auto crosses_ranks = [&](const Placement::VirtualStage& stage, int neighbour) {
    return neighbour >= 0 && placement.stages[static_cast<std::size_t>(neighbour)].rank != stage.rank &&
           stage.first_micro_batch < stage.last_micro_batch;
  };
  for (const Placement::VirtualStage& stage : placement.stages) {
    if (!crosses_ranks(stage, stage.next)) continue;
    const int next_rank = placement.stages[static_cast<std::size_t>(stage.next)].rank;
    channels_.push_back({stage.rank, next_rank, Channel::Kind::activation});
    channels_.push_back({next_rank, stage.rank, Channel::Kind::gradient});
  }
  std::sort(channels_.begin(), channels_.end());
  channels_.erase(std::unique(channels_.begin(), channels_.end()), channels_.end());

  const auto index_of = [&](const Channel& channel) {
    return static_cast<int>(std::lower_bound(channels_.begin(), channels_.end(), channel) - channels_.begin());
  };
  for (std::size_t s = 0; s < placement.stages.size(); ++s) {
    const Placement::VirtualStage& stage = placement.stages[s];
    if (!crosses_ranks(stage, stage.next)) continue;
    const auto next = static_cast<std::size_t>(stage.next);
    const int next_rank = placement.stages[next].rank;
    forward_[s].produces = forward_[next].consumes = index_of({stage.rank, next_rank, Channel::Kind::activation});
    backward_[next].produces = backward_[s].consumes = index_of({next_rank, stage.rank, Channel::Kind::gradient});
  }
}

std::vector<Channel> channels(const Schedule& schedule) { return ChannelTable(schedule.placement).channels(); }

}  // namespace train_gpt
