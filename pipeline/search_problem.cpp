#include "pipeline/search_problem.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace train_gpt::search {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// One value, one per rank or one per virtual stage, as the time of one virtual stage.
double stage_cost(const std::vector<double>& costs, const Problem& problem, int stage) {
  if (costs.size() == 1) return costs[0] / problem.chunks;
  if (static_cast<int>(costs.size()) == problem.stages) return costs[index(stage)];
  return costs[index(problem.rank_of[index(stage)])] / problem.chunks;
}

}  // namespace

double Problem::memory_change(Operation operation) const {
  if (operation == kForward) return 1.0 / chunks;
  return -(operation == kInput ? 1 - weight_memory : weight_memory) / chunks;
}

double Problem::busy(int rank) const {
  double sum = 0;
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (const auto& durations : duration) sum += durations[index(stage(rank, chunk))];
  return sum * micro_batches;
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
    for (std::size_t chunk = 0; chunk < own.size(); ++chunk) problem.chunk_of[index(own[chunk])] = static_cast<int>(chunk);
    problem.stage_of.insert(problem.stage_of.end(), own.begin(), own.end());
  }
  const std::vector<double>* costs[3] = {&request.forward, &request.input, &request.weight};
  for (int stage = 0; stage < problem.stages; ++stage) {
    for (int operation = 0; operation < 3; ++operation)
      problem.duration[operation].push_back(stage_cost(*costs[operation], problem, stage));
    const bool crosses = stage > 0 && problem.rank_of[index(stage)] != problem.rank_of[index(stage - 1)];
    problem.hop.push_back(crosses ? request.hop : 0);
  }
  for (int rank = 0; rank < problem.ranks; ++rank) {
    if (request.memory_limit.empty()) problem.limit.push_back(std::numeric_limits<double>::infinity());
    else problem.limit.push_back(request.memory_limit[request.memory_limit.size() == 1 ? 0 : index(rank)]);
    double start = 0;
    for (int stage = 0; stage < problem.stage(rank, 0); ++stage)
      start += problem.time(kForward, stage) + problem.hop[index(stage + 1)];
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

Evaluator::Evaluator(const Problem& problem) : problem_(problem) {
  const std::size_t ranks = index(problem.ranks), stages = index(problem.stages), m = index(problem.micro_batches);
  start_.assign(ranks, std::vector<double>(3 * index(problem.chunks) * m));
  for (auto& end : end_) end.assign(stages, std::vector<double>(m));
  for (auto& done : done_) done.resize(stages);
  position_.resize(ranks);
  free_.resize(ranks);
  first_.resize(ranks);
  peak_.resize(ranks);
  queued_.resize(ranks);
  ready_.reserve(ranks);
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
  score_.objective = problem_.objective == SearchObjective::makespan ? makespan : span;
  score_.other = problem_.objective == SearchObjective::makespan ? span : makespan;
  return true;
}

bool Evaluator::run_until_blocked(const RankOrder& list, int rank) {
  std::size_t position = position_[index(rank)];
  double now = free_[index(rank)];
  double* starts = start_[index(rank)].data();
  const auto wake = [&](int stage) {
    const int other = problem_.rank_of[index(stage)];
    if (other != rank && !queued_[index(other)]) {
      queued_[index(other)] = 1;
      ready_.push_back(other);
    }
  };
  for (; position < list.size(); ++position) {
    const Operation operation = operation_of(list[position]);
    const int stage = problem_.stage(rank, chunk_of(list[position]));
    const int micro_batch = done_[operation][index(stage)];
    if (operation == kWeight) {
      if (micro_batch >= done_[kInput][index(stage)]) return false;
    } else {
      if (operation == kInput && micro_batch >= done_[kForward][index(stage)]) return false;
      const int source = operation == kForward ? stage - 1 : stage + 1;
      if (source >= 0 && source < problem_.stages) {
        if (micro_batch >= done_[operation][index(source)]) {
          if (problem_.rank_of[index(source)] == rank) return false;
          break;
        }
        now = std::max(now, end_[operation][index(source)][index(micro_batch)] +
                                problem_.hop[index(std::max(stage, source))]);
      }
    }
    starts[position] = now;
    now += problem_.duration[operation][index(stage)];
    ++done_[operation][index(stage)];
    if (operation == kWeight) continue;
    end_[operation][index(stage)][index(micro_batch)] = now;
    const int target = operation == kForward ? stage + 1 : stage - 1;
    if (target >= 0 && target < problem_.stages) wake(target);
  }
  position_[index(rank)] = position;
  free_[index(rank)] = now;
  first_[index(rank)] = starts[0];
  return true;
}

Schedule to_schedule(const Problem& problem, const Order& order) {
  Schedule schedule;
  schedule.name = "auto";
  schedule.ranks = problem.ranks;
  schedule.chunks = problem.chunks;
  schedule.micro_batches = problem.micro_batches;
  schedule.placement = problem.placement;
  constexpr Op kOps[3] = {Op::forward, Op::backward_input, Op::backward_weight};
  std::vector<int> done[3];
  for (auto& counts : done) counts.assign(index(problem.stages), 0);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    std::vector<Action>& list = schedule.lists.emplace_back();
    for (const Letter letter : order[index(rank)]) {
      const int stage = problem.stage(rank, chunk_of(letter));
      const Operation operation = operation_of(letter);
      list.push_back({kOps[operation], false, stage, done[operation][index(stage)]++});
    }
  }
  return schedule;
}

}  // namespace train_gpt::search
