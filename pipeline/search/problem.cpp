#include "pipeline/search/problem.h"

#include <algorithm>
#include <limits>

#include "pipeline/schedule/channels.h"
#include "pipeline/simulate/durations.h"

namespace train_gpt::search {
namespace {}  // namespace

double Problem::memory_change(Operation operation) const {
  if (operation == kForward) return 1.0 / chunks;
  return -(operation == kInput ? 1 - weight_memory : weight_memory) / chunks;
}

double Problem::busy(int rank) const {
  double sum = 0;
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (const auto& durations : duration) sum += durations[index(stage(rank, chunk))];
  if (fused.empty()) return sum * micro_batches;
  // Every F is in at most one pair, whose B belongs to any stage of the rank.
  double longest_backward = 0;
  for (int chunk = 0; chunk < chunks; ++chunk)
    longest_backward = std::max(longest_backward, time(kInput, stage(rank, chunk)) + time(kWeight, stage(rank, chunk)));
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int own = stage(rank, chunk);
    sum -= std::max(0.0, time(kForward, own) + longest_backward - fused[index(own)]);
  }
  return std::max(0.0, sum) * micro_batches;
}

double Problem::shortest(Operation operation, int stage) const {
  if (fused.empty()) return time(operation, stage);
  if (operation == kForward) return std::min(time(kForward, stage), fused[index(stage)]);
  if (operation == kWeight) return 0;  // over with the pair
  double least = time(kInput, stage);
  for (int chunk = 0; chunk < chunks; ++chunk)
    least = std::min(least, fused[index(this->stage(rank_of[index(stage)], chunk))]);
  return least;
}

Problem make_problem(const SearchRequest& request, const Placement& placement) {
  Problem problem;
  problem.placement = placement;
  problem.ranks = placement.ranks;
  problem.chunks = placement.chunks;
  problem.micro_batches = request.micro_batches;
  problem.stages = placement.depth();
  problem.objective = request.objective;
  problem.weight_memory = request.weight_memory;
  for (const Placement::VirtualStage& stage : placement.stages) problem.rank_of.push_back(stage.rank);
  problem.chunk_of.resize(index(problem.stages));
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const std::vector<int> own = placement.stages_of(rank);
    for (std::size_t chunk = 0; chunk < own.size(); ++chunk)
      problem.chunk_of[index(own[chunk])] = static_cast<int>(chunk);
    problem.stage_of.insert(problem.stage_of.end(), own.begin(), own.end());
  }
  StageCosts costs = stage_costs(request.costs, placement);
  problem.duration[kForward] = std::move(costs.forward);
  problem.duration[kInput] = std::move(costs.input);
  problem.duration[kWeight] = std::move(costs.weight);
  for (std::size_t s = 0; s < costs.fused.size(); ++s)
    for (const int other : placement.stages_of(problem.rank_of[s])) {
      const std::size_t t = index(other);
      const double apart = problem.duration[kForward][s] + problem.duration[kInput][t] + problem.duration[kWeight][t];
      if (costs.fused[s] < apart) problem.fused = costs.fused;
    }
  problem.send_slowdown = costs.send_slowdown;
  const ChannelTable table(placement);
  std::vector<int> uses(table.channels().size());
  for (int stage = 0; stage < problem.stages; ++stage) {
    const int activations = table.messages({Op::forward, false, stage, 0}).consumes;
    const int gradients = stage == 0 ? -1 : table.messages({Op::backward_input, false, stage - 1, 0}).consumes;
    problem.channel[kForward].push_back(activations);
    problem.channel[kInput].push_back(gradients);
    for (const Operation operation : {kForward, kInput}) {
      const Hop& hop = (operation == kForward ? costs.activation : costs.gradient)[index(stage)];
      problem.hop[operation].push_back(hop.total());
      problem.transfer[operation].push_back(hop.transfer);
    }
    if (activations >= 0) ++uses[index(activations)], ++uses[index(gradients)];
  }
  for (const int count : uses) problem.shared.push_back(count > 1);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    // A rank never holds more than all m micro-batches: a limit of that or more is none, and is not searched as one.
    constexpr double kNone = std::numeric_limits<double>::infinity();
    const auto& limits = request.memory_limit;
    const double limit = limits.empty() ? kNone : limits[limits.size() == 1 ? 0 : index(rank)];
    problem.limit.push_back(limit >= request.micro_batches ? kNone : limit);
    double start = 0;
    for (int stage = 0; stage < problem.stage(rank, 0); ++stage)
      start += problem.time(kForward, stage) + problem.hop[kForward][index(stage + 1)];
    problem.first_start.push_back(start);
  }
  return problem;
}

bool Score::better_than(const Score& rival) const {
  const double slack = 1e-9 * std::max(objective, rival.objective);
  if (objective < rival.objective - slack) return true;
  if (objective > rival.objective + slack) return false;
  if (other < rival.other - slack) return true;
  if (other > rival.other + slack) return false;
  return peak < rival.peak - kMemorySlack;
}

bool Score::reaches(const Score& bound) const {
  return objective <= bound.objective * (1 + 2e-9) && other <= bound.other * (1 + 2e-9);
}

double peak_of(const Problem& problem, const RankOrder& list) {
  const double change[3] = {problem.memory_change(kForward), problem.memory_change(kInput),
                            problem.memory_change(kWeight)};
  double live = 0, peak = 0;
  for (const Letter letter : list) {
    live += change[operation_of(letter)];
    peak = std::max(peak, live);
  }
  return peak;
}

Evaluator::Evaluator(const Problem& problem, bool keep_starts) : problem_(problem), keep_starts_(keep_starts) {
  const std::size_t ranks = index(problem.ranks), stages = index(problem.stages), m = index(problem.micro_batches);
  if (keep_starts) start_.assign(ranks, std::vector<double>(3 * index(problem.chunks) * m));
  for (auto& arrivals : arrival_) arrivals.resize(stages * m);
  for (auto& done : done_) done.resize(stages);
  position_.resize(ranks);
  free_.resize(ranks);
  first_.resize(ranks);
  peak_.resize(ranks);
  queued_.resize(ranks);
  channel_free_.resize(problem.shared.size());
  sends_until_.resize(ranks);
  sent_.resize(problem.shared.size());
  taken_.resize(problem.shared.size());
  ready_.reserve(ranks);
  make_steps();
}

void Evaluator::make_steps() {
  for (int rank = 0; rank < problem_.ranks; ++rank)
    for (int chunk = 0; chunk < problem_.chunks; ++chunk)
      for (const Operation operation : {kForward, kInput, kWeight}) {
        Step& step = steps_.emplace_back();
        step.stage = problem_.stage(rank, chunk);
        step.operation = operation;
        step.duration = problem_.time(operation, step.stage);
        if (!problem_.fused.empty()) step.fused = problem_.fused[index(step.stage)];
        if (operation == kWeight) continue;
        const int down = step.stage - 1, up = step.stage + 1 < problem_.stages ? step.stage + 1 : -1;
        step.source = operation == kForward ? down : up;
        step.target = operation == kForward ? up : down;
        if (step.source >= 0) {
          step.takes = problem_.channel[operation][index(std::max(step.stage, step.source))];
          step.takes_in_order = step.takes >= 0 && problem_.shared[index(step.takes)];
        }
        if (step.target < 0) continue;
        const std::size_t edge = index(std::max(step.stage, step.target));
        step.gives = problem_.channel[operation][edge];
        step.gives_in_order = step.gives >= 0 && problem_.shared[index(step.gives)];
        step.hop = problem_.hop[operation][edge];
        step.transfer = problem_.transfer[operation][edge];
        step.taker = problem_.rank_of[index(step.target)];
      }
}

bool Evaluator::evaluate(const Order& order) {
  score_ = {};
  ready_.clear();
  for (int rank = problem_.ranks - 1; rank >= 0; --rank) {
    peak_[index(rank)] = peak_of(problem_, order[index(rank)]);
    if (peak_[index(rank)] > problem_.limit[index(rank)] + kMemorySlack) return false;
    score_.peak = std::max(score_.peak, peak_[index(rank)]);
    ready_.push_back(rank);
  }
  for (auto& done : done_) std::fill(done.begin(), done.end(), 0);
  std::fill(position_.begin(), position_.end(), 0);
  std::fill(free_.begin(), free_.end(), 0.0);
  std::fill(channel_free_.begin(), channel_free_.end(), 0.0);
  std::fill(sends_until_.begin(), sends_until_.end(), 0.0);
  std::fill(taken_.begin(), taken_.end(), 0);
  for (auto& messages : sent_) messages.clear();
  std::fill(queued_.begin(), queued_.end(), 1);
  while (!ready_.empty()) {
    const int rank = ready_.back();
    ready_.pop_back();
    queued_[index(rank)] = 0;
    if (!run_until_blocked(order[index(rank)], rank)) return false;
  }
  double makespan = 0, span = 0;
  for (int rank = 0; rank < problem_.ranks; ++rank) {
    if (position_[index(rank)] < order[index(rank)].size()) return false;
    makespan = std::max(makespan, free_[index(rank)]);
    span = std::max(span, free_[index(rank)] - first_[index(rank)]);
  }
  score_.objective = problem_.objective == Objective::makespan ? makespan : span;
  score_.other = problem_.objective == Objective::makespan ? 0 : makespan;
  return true;
}

// Whether the next message (or the neighbour on the same rank) has what the next micro-batch of a stage needs; raises
// `now` to its arrival. A message of a shared channel is taken from its queue if `take`.
inline Evaluator::Input Evaluator::take_input(const Step& step, bool take, double& now) {
  const std::size_t stage = index(step.stage);
  const int micro_batch = done_[step.operation][stage];
  if (step.operation == kWeight) return micro_batch < done_[kInput][stage] ? Input::here : Input::never;
  if (step.operation == kInput && micro_batch >= done_[kForward][stage]) return Input::never;
  if (step.source < 0) return Input::here;
  if (step.takes_in_order) {
    const std::vector<int>& messages = sent_[index(step.takes)];
    std::size_t& taken = taken_[index(step.takes)];
    if (taken == messages.size()) return Input::not_yet;
    if (messages[taken] != step.stage) return Input::never;
    if (take) ++taken;
  } else if (micro_batch >= done_[step.operation][index(step.source)]) {
    return step.takes < 0 ? Input::never : Input::not_yet;
  }
  now =
      std::max(now, arrival_[step.operation][index(step.source) * index(problem_.micro_batches) + index(micro_batch)]);
  return Input::here;
}

bool Evaluator::run_until_blocked(const RankOrder& list, int rank) {
  std::size_t position = position_[index(rank)];
  double now = free_[index(rank)];
  double* starts = keep_starts_ ? start_[index(rank)].data() : nullptr;
  while (position < list.size()) {
    const Step& own = step(rank, list[position]);
    const bool pair = is_paired(list[position]);
    double start = now;
    Input input = Input::here;
    const Step& partner = pair ? step(rank, list[position + 1]) : own;
    if (pair) input = take_input(partner, false, start);
    if (input == Input::here) input = take_input(own, true, start);
    if (input == Input::never) return false;
    if (input == Input::not_yet) break;
    if (pair) take_input(partner, true, start);
    const double alone = pair ? own.fused : own.duration;
    now = start + slowed_by_sends(alone, sends_until_[index(rank)] - start, problem_.send_slowdown);
    if (position == 0) first_[index(rank)] = start;
    const std::size_t end = position + (pair ? 3 : 1);
    for (; position < end; ++position) {
      if (starts != nullptr) starts[position] = start;
      hand_over(step(rank, list[position]), rank, now);
    }
  }
  position_[index(rank)] = position;
  free_[index(rank)] = now;
  return true;
}

// Counts a finished action, and wakes who waits for its result.
inline void Evaluator::hand_over(const Step& step, int rank, double now) {
  const int micro_batch = done_[step.operation][index(step.stage)]++;
  if (step.target < 0) return;
  double& arrival = arrival_[step.operation][index(step.stage) * index(problem_.micro_batches) + index(micro_batch)];
  arrival = now;
  if (step.gives < 0) return;
  double& channel_free = channel_free_[index(step.gives)];
  const double begin = std::max(now, channel_free);
  arrival = begin + step.hop;
  channel_free = begin + step.transfer;
  double& sends_until = sends_until_[index(rank)];
  sends_until = std::max(sends_until, channel_free);
  if (step.gives_in_order) sent_[index(step.gives)].push_back(step.target);
  if (queued_[index(step.taker)]) return;
  queued_[index(step.taker)] = 1;
  ready_.push_back(step.taker);
}

}  // namespace train_gpt::search
