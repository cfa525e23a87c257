#include "pipeline/plan/speculation.h"

#include <algorithm>

#include "pipeline/schedule/channels.h"

namespace train_gpt {
namespace {

bool writes_gradients(const RankPlan& rank, const Action& action) {
  if (action.op != Op::forward) return true;
  const std::vector<GradientRange> ranges = gradient_ranges(rank.stage_plan(action.stage).shape, rank.layout);
  return std::any_of(ranges.begin(), ranges.end(), [](const GradientRange& range) { return range.in_forward; });
}

// Place of a forward in the list of its rank.
std::size_t place_of_forward(const Schedule& schedule, int stage, int micro_batch) {
  const std::vector<Action>& list = schedule.actions(schedule.placement.stages[static_cast<std::size_t>(stage)].rank);
  const auto found = std::find_if(list.begin(), list.end(), [&](const Action& action) {
    return action.op == Op::forward && action.stage == stage && action.micro_batch == micro_batch;
  });
  return static_cast<std::size_t>(found - list.begin());
}

}  // namespace

std::vector<std::size_t> actions_ahead(const Plan& plan) {
  const Schedule& schedule = plan.request.schedule;
  std::vector<std::size_t> ahead;
  for (const RankPlan& rank : plan.ranks) {
    const std::vector<Action>& list = schedule.actions(rank.rank);
    const auto first =
        std::find_if(list.begin(), list.end(), [&](const Action& action) { return writes_gradients(rank, action); });
    ahead.push_back(static_cast<std::size_t>(first - list.begin()));
  }
  // Shortening one rank's part may shorten those that it feeds: repeat until nothing changes.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t r = 0; r < ahead.size(); ++r) {
      const std::vector<Action>& list = schedule.actions(static_cast<int>(r));
      for (std::size_t i = 0; i < ahead[r]; ++i) {
        const int previous = schedule.placement.stages[static_cast<std::size_t>(list[i].stage)].previous;
        if (previous < 0) continue;
        const int source = schedule.placement.stages[static_cast<std::size_t>(previous)].rank;
        if (place_of_forward(schedule, previous, list[i].micro_batch) < ahead[static_cast<std::size_t>(source)])
          continue;
        ahead[r] = i;
        changed = true;
      }
    }
  }
  return ahead;
}

int messages_ahead(const Plan& plan, const std::vector<std::size_t>& ahead, int channel) {
  const ChannelTable table(plan.request.schedule.placement);
  const int source = table.channels()[static_cast<std::size_t>(channel)].source;
  const std::vector<Action>& list = plan.request.schedule.actions(source);
  return static_cast<int>(
      std::count_if(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(ahead[static_cast<std::size_t>(source)]),
                    [&](const Action& action) { return table.messages(action).produces == channel; }));
}

}  // namespace train_gpt
