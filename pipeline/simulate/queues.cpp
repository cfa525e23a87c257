// The load of every channel, and how many messages queue in it when nobody limits their number.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "pipeline/schedule/channels.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/parts.h"

namespace train_gpt {
namespace {

// Times of all messages, channel after channel: those of channel c lie in [offset[c], offset[c + 1]).
struct MessageTimes {
  std::vector<std::size_t> offset;
  std::vector<double> sent;   // end of the sending action
  std::vector<double> taken;  // end of the taking action
};

MessageTimes message_times(const Schedule& schedule, const ChannelTable& table,
                           const std::vector<std::vector<Interval>>& intervals) {
  MessageTimes times;
  times.offset.assign(table.channels().size() + 1, 0);
  for (const std::vector<Action>& list : schedule.lists) {
    for (const Action& action : list) {
      if (const int channel = table.messages(action).produces; channel >= 0) ++times.offset[channel + 1];
    }
  }
  for (std::size_t c = 1; c < times.offset.size(); ++c) times.offset[c] += times.offset[c - 1];
  times.sent.resize(times.offset.back());
  times.taken.resize(times.offset.back());
  // A rank's list gives both kinds of times in ascending order, which is the order of its channels.
  std::vector<std::size_t> next_sent = times.offset, next_taken = times.offset;
  for (std::size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    for (std::size_t i = 0; i < schedule.lists[rank].size(); ++i) {
      const ChannelTable::Messages messages = table.messages(schedule.lists[rank][i]);
      if (messages.produces >= 0) times.sent[next_sent[messages.produces]++] = intervals[rank][i].end;
      if (messages.consumes >= 0) times.taken[next_taken[messages.consumes]++] = intervals[rank][i].end;
    }
  }
  // Lists that are not complete may leave messages that nobody takes: those stay.
  for (std::size_t c = 0; c + 1 < times.offset.size(); ++c) {
    for (std::size_t i = next_taken[c]; i < times.offset[c + 1]; ++i) {
      times.taken[i] = std::numeric_limits<double>::infinity();
    }
  }
  return times;
}

int longest_queue(const MessageTimes& times, std::size_t channel, double tolerance) {
  const std::size_t end = times.offset[channel + 1];
  std::size_t taken = times.offset[channel];
  std::size_t longest = 0;
  for (std::size_t sent = times.offset[channel]; sent < end; ++sent) {
    // A slot that becomes free at this very moment can be used, whatever rounding says.
    while (taken < sent && times.taken[taken] <= times.sent[sent] + tolerance) ++taken;
    longest = std::max(longest, sent + 1 - taken);
  }
  return static_cast<int>(longest);
}

}  // namespace

std::vector<ChannelLoad> channel_loads(const Schedule& schedule, const StageCosts& costs,
                                       const std::vector<std::vector<Interval>>& intervals) {
  const ChannelTable table(schedule.placement);
  const MessageTimes times = message_times(schedule, table, intervals);
  double last = 0.0;
  for (const std::vector<Interval>& list : intervals) {
    if (!list.empty()) last = std::max(last, list.back().end);
  }
  constexpr double kRelativeTolerance = 1e-9;
  std::vector<double> bytes(table.channels().size(), 0.0);
  for (const std::vector<Action>& list : schedule.lists) {
    for (const Action& action : list) {
      const int channel = table.messages(action).produces;
      if (channel >= 0) bytes[channel] += costs.hop_after(action.op, action.stage, schedule.placement).bytes;
    }
  }
  std::vector<ChannelLoad> loads;
  for (std::size_t c = 0; c < table.channels().size(); ++c) {
    ChannelLoad load;
    load.channel = table.channels()[c];
    load.messages = static_cast<std::int64_t>(times.offset[c + 1] - times.offset[c]);
    load.bytes = bytes[c];
    load.longest_queue = longest_queue(times, c, last * kRelativeTolerance);
    if (load.messages > 0) loads.push_back(load);
  }
  return loads;
}

}  // namespace train_gpt
