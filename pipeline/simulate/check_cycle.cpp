// The acyclicity test of check_schedule.h. Instead of building the graph, every rank advances along its list as far as
// messages and slots allow. No edge of the graph depends on time, so the order in which ranks advance does not matter:
// either all lists end, or the ranks that are left wait for each other in a circle.
#include <algorithm>
#include <cstdint>
#include <deque>

#include "pipeline/schedule/channels.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/check_schedule.h"

namespace train_gpt {

namespace {

// A message i may be produced once message i-K-S is consumed: i-S must have left for a receive slot, which was free
// once i-S-K was consumed. With K and S counted together, one number per channel says how far its ends are apart.
struct Progress {
  std::int64_t produced = 0;
  std::int64_t consumed = 0;
};

class Runner {
 public:
  Runner(const Schedule& schedule, const std::vector<ChannelSlots>& slots)
      : schedule_(schedule),
        table_(schedule.placement),
        slots_(slots),
        progress_(slots.size()),
        next_(static_cast<std::size_t>(schedule.ranks)) {}

  std::optional<std::string> run() {
    std::deque<int> awake;
    for (int r = 0; r < schedule_.ranks; ++r) awake.push_back(r);
    while (!awake.empty()) {
      const int rank = awake.front();
      awake.pop_front();
      for (const int peer : advance(rank)) awake.push_back(peer);
    }
    for (int r = 0; r < schedule_.ranks; ++r) {
      if (next_[index(r)] < schedule_.actions(r).size()) return describe(r);
    }
    return std::nullopt;
  }

 private:
  // The message that a rank waits for at its next action, or at the second half of a fused pair that starts there.
  struct Wait {
    int channel = -1;
    bool for_message = false;  // otherwise for a slot
    Action action;
  };

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  std::size_t actions_in_step(int rank) const {
    return schedule_.actions(rank)[next_[index(rank)]].fused_with_next ? 2 : 1;
  }

  Wait wait_of(int rank) const {
    for (std::size_t k = 0; k < actions_in_step(rank); ++k) {
      const Action& action = schedule_.actions(rank)[next_[index(rank)] + k];
      const auto [consumes, produces] = table_.messages(action);
      if (consumes >= 0 && progress_[index(consumes)].produced == progress_[index(consumes)].consumed) {
        return {consumes, true, action};
      }
      if (produces >= 0 && in_flight(produces) >= slots_[index(produces)].receive) {
        return {produces, false, action};
      }
    }
    return {};
  }

  std::int64_t in_flight(int channel) const {
    return progress_[index(channel)].produced - progress_[index(channel)].consumed;
  }

  // Runs what can be run; returns the ranks that waited for it.
  std::vector<int> advance(int rank);
  std::string describe(int rank) const;
  std::string describe_wait(int rank, const Wait& wait) const;
  int peer(const Wait& wait) const {
    const Channel& channel = table_.channels()[index(wait.channel)];
    return wait.for_message ? channel.source : channel.destination;
  }

  const Schedule& schedule_;
  const ChannelTable table_;
  const std::vector<ChannelSlots>& slots_;
  std::vector<Progress> progress_;  // [channel]
  std::vector<std::size_t> next_;   // [rank]: position in its list
};

std::vector<int> Runner::advance(int rank) {
  std::vector<int> peers;
  const auto wake = [&](int other) {
    if (std::find(peers.begin(), peers.end(), other) == peers.end()) peers.push_back(other);
  };
  const std::vector<Action>& list = schedule_.actions(rank);
  std::size_t& next = next_[index(rank)];
  while (next < list.size() && wait_of(rank).channel < 0) {
    for (std::size_t left = actions_in_step(rank); left > 0; --left) {
      const auto [consumes, produces] = table_.messages(list[next++]);
      if (consumes >= 0) {
        ++progress_[index(consumes)].consumed;
        wake(table_.channels()[index(consumes)].source);
      }
      if (produces >= 0) {
        ++progress_[index(produces)].produced;
        wake(table_.channels()[index(produces)].destination);
      }
    }
  }
  return peers;
}

std::string Runner::describe_wait(int rank, const Wait& wait) const {
  const bool activation = table_.channels()[index(wait.channel)].kind == Channel::Kind::activation;
  const std::string what = activation ? "activation" : "gradient";
  const std::string peer_rank = std::to_string(peer(wait));
  return "rank " + std::to_string(rank) + " at " + to_string(wait.action) + " waits for " +
         (wait.for_message ? "the " + what + " from rank " + peer_rank
                           : "rank " + peer_rank + " to take one of the " + std::to_string(in_flight(wait.channel)) +
                                 " " + what + "s that fill all slots");
}

// Every waiting rank waits for one other rank, which waits itself: following them leads into the circle.
std::string Runner::describe(int rank) const {
  std::vector<bool> visited(index(schedule_.ranks));
  while (!visited[index(rank)]) {
    visited[index(rank)] = true;
    rank = peer(wait_of(rank));
  }
  std::string text = "schedule " + schedule_.name + " cannot run, ranks wait for each other in a circle: ";
  const int first = rank;
  do {
    const Wait wait = wait_of(rank);
    text += describe_wait(rank, wait) + ", ";
    rank = peer(wait);
  } while (rank != first);
  return text + "which is where it began";
}

}  // namespace

std::optional<std::string> blocking_cycle(const Schedule& schedule, const std::vector<ChannelSlots>& slots) {
  return Runner(schedule, slots).run();
}

}  // namespace train_gpt
