// The channels between ranks follow from the placement alone. Executor, simulator and check all use this one table, so
// the two ends of a channel cannot disagree.
//
// F consumes an activation message if the previous virtual stage lives on another rank and produces one if the next
// does; B and I consume a gradient from the next stage and produce one for the previous stage in the same way. W
// communicates nothing, and neighbouring stages on one rank hand over without a message. The k-th message of a channel
// is that of the k-th producing action in the source rank's list.
#pragma once

#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/channel.h"
#include "pipeline/schedule/placement.h"

namespace train_gpt {

struct Schedule;

class ChannelTable {
 public:
  // The channels of an action's input and output: indices into channels(), -1 for no message.
  struct Messages {
    int consumes = -1;
    int produces = -1;
  };

  explicit ChannelTable(const Placement& placement);

  // Every channel that carries at least one message, sorted by source, destination and kind: the same on every rank.
  const std::vector<Channel>& channels() const { return channels_; }

  Messages messages(const Action& action) const {
    if (action.op == Op::backward_weight) return {};
    const auto stage = static_cast<std::size_t>(action.stage);
    return action.op == Op::forward ? forward_[stage] : backward_[stage];
  }

 private:
  std::vector<Channel> channels_;
  std::vector<Messages> forward_;   // [virtual stage]
  std::vector<Messages> backward_;  // [virtual stage]: B and I
};

std::vector<Channel> channels(const Schedule& schedule);

}  // namespace train_gpt
