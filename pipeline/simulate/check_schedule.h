// The check of a schedule: finds whatever is wrong with it before anything runs. Linear in the number of actions.
//
// A schedule is complete (each micro-batch passes each of its stages with one F and one B, or one F, I and W), in order
// (F before I or B before W; neighbouring stages on one rank in the order of their hand-over), and agrees with itself:
// on every channel the messages are consumed in the order in which they are produced. What is left can then only fail
// by ranks waiting for each other in a circle.
//
// A channel has K receive slots and S send slots. A message stays in its send slot until it has a receive slot, and in
// its receive slot until the action that consumes it has run. So besides the lists there are the edges "message i+K
// needs message i consumed" and "send i+S needs send i received"; the schedule can run, whatever actions and messages
// take, if lists and edges form no circle.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule/channel.h"
#include "pipeline/simulate/simulator.h"

namespace train_gpt {

struct Schedule;

// The slots of one channel.
struct ChannelSlots {
  Channel channel;
  std::int64_t messages = 0;  // per step
  int receive = 2;            // K: the longest queue of the simulation with unlimited slots, at least two
  int send = 2;               // S: one message on its way while the next is being written
};

struct ScheduleCheck {
  std::vector<ChannelSlots> channels;  // as ChannelTable::channels() orders them
  std::vector<std::string> notices;    // what the user should know about a schedule that is accepted all the same
};

// Throws std::invalid_argument with one message that says what is wrong and where, or names the circle of ranks that
// wait for each other. A schedule in which F, B or W of a stage leave micro-batch order is accepted with a notice:
// gradients (of a streamed head in F) are then added in another order than elsewhere. `costs` are those of the
// simulation that measures the queues.
ScheduleCheck check_schedule(const Schedule& schedule, const Costs& costs = {});

// Describes the circle of ranks that wait for each other if complete and ordered lists cannot run with these slots;
// empty if they can. Slots are in the order of ChannelTable::channels().
std::optional<std::string> blocking_cycle(const Schedule& schedule, const std::vector<ChannelSlots>& slots);

}  // namespace train_gpt
