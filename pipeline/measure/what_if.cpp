#include "pipeline/measure/what_if.h"

#include <algorithm>
#include <stdexcept>

namespace train_gpt {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double sum(const Passes& passes) { return passes[0] + passes[1] + passes[2]; }

Passes times(const Passes& passes, const Passes& factors) {
  return {passes[0] * factors[0], passes[1] * factors[1], passes[2] * factors[2]};
}

// The position of the action that produced each output [stage][micro-batch].
struct Producers {
  explicit Producers(const Schedule& schedule) : micro_batches(schedule.micro_batches) {
    for (auto& table : place) table.assign(schedule.placement.stages.size() * micro_batches, {-1, 0});
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const std::vector<Action>& list = schedule.actions(rank);
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].op == Op::backward_weight) continue;
        place[list[i].op == Op::forward ? 0 : 1][list[i].stage * micro_batches + list[i].micro_batch] = {
            rank, static_cast<int>(i)};
      }
    }
  }
  // The producer of the action's input if that comes from another rank; else rank -1.
  ActionPosition of(const Schedule& schedule, const Action& action) const {
    if (action.op == Op::backward_weight) return {-1, 0};
    const Placement::VirtualStage& stage = schedule.placement.stages[action.stage];
    const int source = action.op == Op::forward ? stage.previous : stage.next;
    if (source < 0 || schedule.placement.stages[source].rank == stage.rank) return {-1, 0};
    return place[action.op == Op::forward ? 0 : 1][source * micro_batches + action.micro_batch];
  }
  std::size_t micro_batches;
  std::vector<ActionPosition> place[2];
};

}  // namespace

double makespan_of(const RecordedStep& step) {
  double first = 1e300, last = -1e300;
  for (const std::vector<RecordedAction>& list : step.actions) {
    if (list.empty()) continue;
    first = std::min(first, list.front().begin);
    last = std::max(last, list.back().end);
  }
  return std::max(0.0, last - first);
}

WhatIf::WhatIf(RecordedSteps recorded) : recorded_(std::move(recorded)) {
  const Schedule& schedule = recorded_.schedule;
  if (recorded_.steps.empty()) throw std::invalid_argument("no step was recorded");
  for (const RecordedStep& step : recorded_.steps) {
    bool same = step.actions.size() == schedule.lists.size();
    for (std::size_t r = 0; same && r < schedule.lists.size(); ++r)
      same = step.actions[r].size() == schedule.lists[r].size();
    if (!same) throw std::invalid_argument("the recorded steps are not of the lists of " + schedule.name);
    measured_ms_ += makespan_of(step) / static_cast<double>(recorded_.steps.size());
    whole_step_ms_ += step.ms / static_cast<double>(recorded_.steps.size());
  }
  measure_links();
  take_durations();
  replayed_ms_ = makespan_if(unchanged());
}

Passes WhatIf::planned_of(const Action& action) const {
  const StageCosts& planned = recorded_.planned;
  Passes passes{};
  if (action.op == Op::forward) passes[0] = planned.forward[action.stage];
  if (action.op == Op::backward || action.op == Op::backward_input) passes[1] = planned.input[action.stage];
  if (action.op == Op::backward || action.op == Op::backward_weight) passes[2] = planned.weight[action.stage];
  return passes;
}

// The time of a message is that from the end of the action that sent it to the start of the one that was waiting for
// it; the median of a link is the cost of its stages' hops.
void WhatIf::measure_links() {
  const Schedule& schedule = recorded_.schedule;
  links_ = recorded_.planned;
  const std::size_t stages = schedule.placement.stages.size();
  links_.activation.resize(stages);
  links_.gradient.resize(stages);
  const Producers producers(schedule);
  std::vector<std::vector<double>> took[2] = {std::vector<std::vector<double>>(stages),
                                              std::vector<std::vector<double>>(stages)};
  for (const RecordedStep& step : recorded_.steps) {
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      for (std::size_t i = 1; i < schedule.actions(rank).size(); ++i) {
        const Action& action = schedule.actions(rank)[i];
        const ActionPosition from = producers.of(schedule, action);
        if (from.rank < 0) continue;
        const double sent = step.actions[from.rank][from.position].end;
        if (step.actions[rank][i - 1].end >= sent) continue;  // nobody was waiting
        const bool forward = action.op == Op::forward;
        const int edge = forward ? action.stage : schedule.placement.stages[action.stage].next;
        took[forward ? 0 : 1][edge].push_back(std::max(0.0, step.actions[rank][i].begin - sent));
      }
    }
  }
  for (std::size_t s = 0; s < stages; ++s) {
    for (const int kind : {0, 1}) {
      if (took[kind][s].empty()) continue;
      Hop& hop = (kind == 0 ? links_.activation : links_.gradient)[s];
      hop.latency = std::max(0.0, median(took[kind][s]) - hop.transfer);
    }
  }
}

// A gap between two actions without a wait belongs to the second.
void WhatIf::take_durations() {
  const Schedule& schedule = recorded_.schedule;
  const Producers producers(schedule);
  std::vector<Passes> measured(schedule.lists.size(), Passes{}), planned = measured;
  stage_means_.assign(schedule.placement.stages.size(), Passes{});
  std::vector<Passes> counts = stage_means_;
  for (const RecordedStep& step : recorded_.steps) {
    auto& ranks = took_.emplace_back(schedule.lists.size());
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      for (std::size_t i = 0; i < schedule.actions(rank).size(); ++i) {
        const Action& action = schedule.actions(rank)[i];
        const RecordedAction& it = step.actions[rank][i];
        double begin = it.begin;
        if (i > 0) {
          const ActionPosition from = producers.of(schedule, action);
          const double before = step.actions[rank][i - 1].end;
          double arrived = before;
          if (from.rank >= 0) {
            const bool forward = action.op == Op::forward;
            const int edge = forward ? action.stage : schedule.placement.stages[action.stage].next;
            const Hop& hop = (forward ? links_.activation : links_.gradient)[edge];
            arrived = step.actions[from.rank][from.position].end + hop.total();
          }
          begin = std::min(begin, std::max(before, arrived));
        }
        Passes passes{};
        if (action.op == Op::forward) passes[0] = it.end - begin;
        if (action.op == Op::backward_input) passes[1] = it.end - begin;
        if (action.op == Op::backward_weight) passes[2] = it.end - begin;
        if (action.op == Op::backward) passes[1] = it.middle - begin, passes[2] = it.end - it.middle;
        for (double& ms : passes) ms = std::max(0.0, ms);
        ranks[rank].push_back(passes);
        const Passes wanted = planned_of(action);
        const bool has[3] = {action.op == Op::forward, action.op == Op::backward || action.op == Op::backward_input,
                             action.op == Op::backward || action.op == Op::backward_weight};
        for (int pass = 0; pass < 3; ++pass) {
          measured[rank][pass] += passes[pass];
          planned[rank][pass] += wanted[pass];
          stage_means_[action.stage][pass] += passes[pass];
          counts[action.stage][pass] += has[pass];
        }
      }
    }
  }
  for (std::size_t s = 0; s < stage_means_.size(); ++s)
    for (int pass = 0; pass < 3; ++pass)
      if (counts[s][pass] > 0) stage_means_[s][pass] /= counts[s][pass];
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    Passes& slowness = slowness_.emplace_back();
    // An action that was planned to take no time has no slowness of its own.
    const double all = sum(planned[rank]) > 0 ? sum(measured[rank]) / sum(planned[rank]) : 1;
    for (int pass = 0; pass < 3; ++pass)
      slowness[pass] = planned[rank][pass] > 0 ? measured[rank][pass] / planned[rank][pass] : all;
  }
}

double WhatIf::slowness_of_all(int rank) const {
  Passes planned{}, measured{};
  for (const Action& action : recorded_.schedule.actions(rank)) {
    const Passes passes = planned_of(action);
    for (int pass = 0; pass < 3; ++pass) {
      planned[pass] += passes[pass];
      measured[pass] += passes[pass] * slowness(rank)[pass];
    }
  }
  return sum(planned) > 0 ? sum(measured) / sum(planned) : 1;
}

double WhatIf::makespan_if(const Changed& changed) const {
  double total = 0;
  SimulateOptions options;
  options.intervals = options.channels = options.bound_and_memory = false;
  for (std::size_t step = 0; step < took_.size(); ++step) {
    const ActionDurations durations = durations_of(step, changed);
    options.durations = &durations;
    total += simulate(recorded_.schedule, changed.links, options).makespan;
  }
  return total / static_cast<double>(took_.size());
}

ActionDurations WhatIf::durations_if(const Changed& changed) const { return durations_of(took_.size() / 2, changed); }

ActionDurations WhatIf::durations_of(std::size_t step, const Changed& changed) const {
  ActionDurations durations;
  for (int rank = 0; rank < recorded_.schedule.ranks; ++rank) {
    std::vector<double>& list = durations.emplace_back();
    for (std::size_t i = 0; i < took_[step][rank].size(); ++i) {
      const Passes& took = took_[step][rank][i];
      list.push_back(sum(changed.action ? changed.action(step, rank, i, took) : took));
    }
  }
  return durations;
}

// The factors from a rank's times to those that it would have if it were as slow as the mean of the others.
Passes WhatIf::factors_to_peers(int rank) const {
  Passes factors{1, 1, 1};
  const std::size_t ranks = slowness_.size();
  if (ranks < 2) return factors;
  for (int pass = 0; pass < 3; ++pass) {
    double others = 0;
    for (std::size_t other = 0; other < ranks; ++other)
      if (static_cast<int>(other) != rank) others += slowness_[other][pass] / static_cast<double>(ranks - 1);
    if (slowness_[rank][pass] > 0) factors[pass] = others / slowness_[rank][pass];
  }
  return factors;
}

WhatIf::Changed WhatIf::rank_as_its_peers(int rank) const {
  const Passes factors = factors_to_peers(rank);
  return {[rank, factors](std::size_t, int at, std::size_t, Passes took) {
            return at == rank ? times(took, factors) : took;
          },
          links_};
}

// As fast as the median rank, since the mean would include the slow ones.
WhatIf::Changed WhatIf::every_rank_as_its_peers() const {
  std::vector<Passes> factors(slowness_.size(), Passes{1, 1, 1});
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<double> all;
    for (const Passes& passes : slowness_) all.push_back(passes[pass]);
    std::sort(all.begin(), all.end());
    const double usual = all[(all.size() - 1) / 2];
    for (std::size_t rank = 0; rank < factors.size(); ++rank)
      if (slowness_[rank][pass] > 0) factors[rank][pass] = usual / slowness_[rank][pass];
  }
  return {[factors](std::size_t, int rank, std::size_t, Passes took) { return times(took, factors[rank]); }, links_};
}

WhatIf::Changed WhatIf::last_stage_as_the_others() const {
  const std::vector<Placement::VirtualStage>& stages = recorded_.schedule.placement.stages;
  const int last = recorded_.schedule.placement.depth() - 1;
  Passes others{}, own{};
  double count = 0, own_count = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const bool is_last = stages[s].model_stage == last;
    (is_last ? own_count : count) += 1;
    for (int pass = 0; pass < 3; ++pass) (is_last ? own : others)[pass] += stage_means_[s][pass];
  }
  Passes factors{1, 1, 1};
  for (int pass = 0; pass < 3 && count > 0; ++pass)
    if (own[pass] > 0) factors[pass] = others[pass] / count / (own[pass] / own_count);
  return {[this, last, factors](std::size_t, int rank, std::size_t position, Passes took) {
            const int stage = recorded_.schedule.actions(rank)[position].stage;
            const bool is_last = recorded_.schedule.placement.stages[stage].model_stage == last;
            return is_last ? times(took, factors) : took;
          },
          links_};
}

WhatIf::Changed WhatIf::link_free(int rank, int other) const {
  Changed changed{nullptr, links_};
  const std::vector<Placement::VirtualStage>& stages = recorded_.schedule.placement.stages;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].previous < 0) continue;
    const int a = stages[stages[s].previous].rank, b = stages[s].rank;
    if ((a != rank || b != other) && (a != other || b != rank)) continue;
    changed.links.activation[s] = changed.links.gradient[s] = {};
  }
  return changed;
}

WhatIf::Changed WhatIf::without_jitter() const {
  return {[this](std::size_t, int rank, std::size_t position, Passes took) {
            const Passes& mean = stage_means_[recorded_.schedule.actions(rank)[position].stage];
            Passes passes{};
            for (int pass = 0; pass < 3; ++pass) passes[pass] = took[pass] > 0 ? mean[pass] : 0;
            return passes;
          },
          links_};
}

}  // namespace train_gpt
