#include "commands/what_if_rows.h"

#include <algorithm>
#include <stdexcept>

#include "commands/run/recorder.h"

namespace train_gpt {
namespace {

constexpr double kWorthARow = 5e-4;   // of the step
constexpr std::size_t kMostRows = 8;  // of one kind

std::vector<RecordedAction> actions_of(const std::vector<Action>& list, const StepRecord::Rank& rank) {
  std::vector<RecordedAction> actions;
  std::size_t at = 0;
  const auto next = [&] { return rank.base + static_cast<double>(rank.numbers[at++]); };
  for (const Action& action : list) {
    RecordedAction& it = actions.emplace_back();
    it.begin = it.middle = next();
    if (action.op == Op::backward) it.middle = next();
    it.end = next();
  }
  return actions;
}

// Every n-th, including the last.
template <class Value>
std::vector<Value> thinned(std::vector<Value> all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<Value> kept;
  for (std::size_t i = 1; i <= most; ++i) kept.push_back(std::move(all[i * all.size() / most - 1]));
  return kept;
}

}  // namespace

RecordedSteps recorded_steps(const Records& records, const RecordHeader& header, std::size_t most) {
  const Schedule& schedule = header.schedule;
  const auto p = static_cast<std::size_t>(schedule.ranks);
  std::vector<StepRecord> steps = records.steps;
  constexpr std::size_t kSettingUp = 2;
  if (steps.size() > 4 * kSettingUp) steps.erase(steps.begin(), steps.begin() + kSettingUp);
  steps = thinned(std::move(steps), most);
  RecordedSteps slowest;
  double slowest_ms = -1;
  for (std::size_t first = 0; first + p <= static_cast<std::size_t>(header.ranks); first += p) {
    RecordedSteps recorded{schedule, header.planned, {}};
    double ms = 0;
    for (const StepRecord& record : steps) {
      RecordedStep& step = recorded.steps.emplace_back(RecordedStep{record.step, record.ms, {}});
      for (std::size_t rank = 0; rank < p; ++rank) {
        const std::vector<Action>& list = schedule.lists[rank];
        const bool fits =
            first + rank < record.ranks.size() &&
            static_cast<std::int64_t>(record.ranks[first + rank].numbers.size()) == recorded_numbers(list);
        if (!fits) throw std::invalid_argument("its steps are not of the run that it names");
        step.actions.push_back(actions_of(list, record.ranks[first + rank]));
      }
      ms += makespan_of(step);
    }
    if (ms <= slowest_ms) continue;
    slowest_ms = ms;
    slowest = std::move(recorded);
  }
  return slowest;
}

std::vector<WhatIfRow> rows_of_same_lists(const WhatIf& what_if, const RecordHeader& header) {
  std::vector<WhatIfRow> rows;
  const Schedule& schedule = what_if.schedule();
  const double now = what_if.replayed_ms();
  const auto row = [&](const std::string& what, const WhatIf::Changed& changed) {
    WhatIfRow it{what, what_if.makespan_if(changed), "", {}};
    it.replay = {schedule, header.partition, what_if.durations_if(changed), changed.links, 0};
    SimulateOptions options;
    options.intervals = options.channels = options.bound_and_memory = false;
    options.durations = &it.replay.durations;
    it.replay.predicted_ms = simulate(schedule, changed.links, options).makespan;
    return it;
  };
  // The best few of one kind, if they gain anything.
  const auto take = [&](std::vector<WhatIfRow> kind) {
    std::erase_if(kind, [&](const WhatIfRow& it) { return it.ms > now * (1 - kWorthARow); });
    std::stable_sort(kind.begin(), kind.end(), [](const auto& a, const auto& b) { return a.ms < b.ms; });
    if (kind.size() > kMostRows) kind.resize(kMostRows);
    for (WhatIfRow& it : kind) rows.push_back(std::move(it));
  };
  std::vector<WhatIfRow> ranks, links;
  for (int rank = 0; rank < schedule.ranks && schedule.ranks > 1; ++rank)
    ranks.push_back(
        row("rank " + std::to_string(rank) + " as fast as the mean of the others", what_if.rank_as_its_peers(rank)));
  take(std::move(ranks));
  for (int rank = 0; rank < schedule.ranks && schedule.ranks > 1; ++rank) {
    const int next = (rank + 1) % schedule.ranks;
    if (next == 0 && schedule.ranks == 2) continue;
    links.push_back(
        row("link " + std::to_string(rank) + "-" + std::to_string(next) + " free", what_if.link_free(rank, next)));
  }
  take(std::move(links));
  if (schedule.placement.depth() > 1)
    take({row("last stage as the mean of the others", what_if.last_stage_as_the_others())});
  take({row("no jitter: every action as its mean", what_if.without_jitter())});
  return rows;
}

}  // namespace train_gpt
