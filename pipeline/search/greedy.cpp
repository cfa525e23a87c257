#include "pipeline/search/greedy.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

namespace train_gpt::search {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr double kNever = -1;

// The roles that the three operations play, whichever way time runs: `up` travels from stage 0 to the last one, `down`
// comes back, the filler talks to nobody. Forwards up, down, filler are F, I, W and W comes last; from the end they are
// I, F, W and W comes first.
class ListScheduler {
 public:
  ListScheduler(const Problem& problem, const Policy& policy)
      : problem_(problem),
        policy_(policy),
        reversed_(policy.from_the_end),
        up_(reversed_ ? kInput : kForward),
        down_(reversed_ ? kForward : kInput) {
    const double sign = reversed_ ? -1 : 1;
    for (int operation = 0; operation < 3; ++operation)
      change_[operation] = sign * problem.memory_change(static_cast<Operation>(operation));
    const std::size_t stages = index(problem.stages), m = index(problem.micro_batches);
    for (auto& done : done_) done.assign(stages, 0);
    for (auto& ready : ready_) ready.assign(stages, std::vector<double>(m, kUnknown));
    std::fill(ready_[up_][0].begin(), ready_[up_][0].end(), 0.0);
    sent_.resize(problem.shared.size());
    taken_.resize(problem.shared.size());
    ranks_.resize(index(problem.ranks));
  }

  std::optional<Order> run() {
    std::size_t left = 0;
    for (int rank = 0; rank < problem_.ranks; ++rank) {
      ranks_[index(rank)].list.reserve(3 * index(problem_.chunks * problem_.micro_batches));
      left += 3 * index(problem_.chunks) * index(problem_.micro_batches);
      wake(rank, release(rank));
    }
    while (!events_.empty()) {
      const auto [time, rank] = events_.top();
      events_.pop();
      Rank& state = ranks_[index(rank)];
      if (time < state.free || time <= state.looked_at) continue;
      state.looked_at = time;
      const Choice choice = policy_.timetable ? choose_by_timetable(rank, time) : choose(rank, time);
      if (choice.stage < 0) continue;
      start(rank, choice, time);
      --left;
    }
    if (left > 0) return std::nullopt;
    Order order;
    for (Rank& state : ranks_) {
      if (reversed_) std::reverse(state.list.begin(), state.list.end());
      order.push_back(std::move(state.list));
    }
    return order;
  }

 private:
  struct Rank {
    double free = 0, live = 0;
    double looked_at = kNever;
    bool turned = false;  // the first `down` has run
    int ups = 0;
    RankOrder list;
  };
  struct Choice {
    int stage = -1;
    Operation operation = kWeight;
  };

  // From the end under the span objective, the ranks start one after the other as they begin forwards.
  double release(int rank) const {
    if (!reversed_ || problem_.objective == Objective::makespan) return 0;
    return problem_.first_start.back() - problem_.first_start[index(rank)];
  }

  // Also when it has looked at that moment already: actions that take no time (I of a shard of the head) make others
  // ready at once.
  void wake(int rank, double time) {
    double& looked_at = ranks_[index(rank)].looked_at;
    if (time <= looked_at) looked_at = kNever;
    events_.push({time, rank});
  }

  // When the next micro-batch of this operation can start as far as its messages go; kUnknown: not sent yet.
  double arrival(Operation operation, int stage) const {
    const int micro_batch = done_[operation][index(stage)];
    if (micro_batch >= problem_.micro_batches) return kUnknown;
    if (operation == down_ && micro_batch >= done_[up_][index(stage)]) return kUnknown;
    const bool turning = operation == down_ && stage + 1 == problem_.stages;
    if (turning) return 0;
    const int edge = operation == up_ ? stage : stage + 1;
    const int channel = edge > 0 ? problem_.channel[operation][index(edge)] : -1;
    if (channel >= 0 && problem_.shared[index(channel)]) {
      const std::vector<int>& messages = sent_[index(channel)];
      const std::size_t taken = taken_[index(channel)];
      if (taken == messages.size() || messages[taken] != stage) return kUnknown;
    }
    return ready_[operation][index(stage)][index(micro_batch)];
  }

  // The memory that must still be free after an action so that its micro-batch can get through the rank's later chunks.
  double reserve(int rank, int chunk, bool filler) const {
    double sum = 0;
    for (int other = filler ? 0 : chunk + 1; other < problem_.chunks; ++other) {
      const int stage = problem_.stage(rank, other);
      sum += change_[up_];
      if (!reversed_) continue;
      const bool stocked = done_[kWeight][index(stage)] > done_[up_][index(stage)];
      if (!stocked && !(filler && other == chunk)) sum += change_[kWeight];
    }
    return sum;
  }

  bool fits(int rank, Operation operation, int chunk) const {
    const Rank& state = ranks_[index(rank)];
    return state.live + change_[operation] + reserve(rank, chunk, operation == kWeight) <=
           problem_.limit[index(rank)] + kMemorySlack;
  }

  bool up_allowed(int rank) const {
    const Rank& state = ranks_[index(rank)];
    return policy_.warmup.empty() || state.turned || state.ups < policy_.warmup[index(rank)];
  }

  bool filler_available(int rank, int chunk) const {
    const std::size_t stage = index(problem_.stage(rank, chunk));
    if (!reversed_) return done_[kWeight][stage] < done_[down_][stage];
    return done_[kWeight][stage] < problem_.micro_batches && fits(rank, kWeight, chunk);
  }

  // Smaller goes first.
  double rank_of_choice(Operation operation, int stage) const {
    const double micro_batch = done_[operation][index(stage)];
    const double stages = problem_.stages;
    const double depth = operation == up_ ? stages - 1 - stage : stage;  // steps left on its way
    double key = 0;
    if (policy_.chunk == Policy::Chunk::oldest_micro_batch) key = micro_batch * stages + depth;
    if (policy_.chunk == Policy::Chunk::deepest) key = depth;
    if (policy_.chunk == Policy::Chunk::shallowest) key = -depth;
    const bool first = (operation == down_) == policy_.input_first;
    return key + (first ? 0 : 4.0 * stages * (problem_.micro_batches + 1));
  }

  Choice choose(int rank, double now) {
    Choice best, filler, needed_filler;
    double best_key = kUnknown, filler_key = kUnknown, next = kUnknown;
    bool blocked = false;  // an `up` has arrived and lacks nothing but memory, or its W from the end
    for (int chunk = 0; chunk < problem_.chunks; ++chunk) {
      const int stage = problem_.stage(rank, chunk);
      for (const Operation operation : {down_, up_}) {
        const double time = arrival(operation, stage);
        if (time == kUnknown) continue;
        if (operation == up_) {
          const bool stocked = !reversed_ || done_[kWeight][index(stage)] > done_[up_][index(stage)];
          if (!stocked) {
            if (time <= now && up_allowed(rank) && filler_available(rank, chunk)) needed_filler = {stage, kWeight};
            continue;
          }
          if (!up_allowed(rank)) continue;
          if (!fits(rank, up_, chunk)) {
            blocked |= time <= now;
            continue;
          }
        }
        if (time > now) {
          next = std::min(next, time);
          continue;
        }
        const double key = rank_of_choice(operation, stage);
        if (key < best_key) best_key = key, best = {stage, operation};
      }
      if (filler_available(rank, chunk)) {
        const double key = done_[kWeight][index(stage)] * static_cast<double>(problem_.stages) +
                           (reversed_ ? stage : problem_.stages - stage);
        if (key < filler_key) filler_key = key, filler = {stage, kWeight};
      }
    }
    if (policy_.make_room && blocked && filler.stage >= 0 && (best.stage < 0 || best.operation == down_)) return filler;
    if (best.stage >= 0) return best;
    if (needed_filler.stage >= 0) return needed_filler;
    if (filler.stage < 0) return {};
    const double gap = next - now;
    if (gap >= policy_.least_gap * problem_.time(kWeight, filler.stage) - 1e-12 ||
        (blocked && gap > 0 && policy_.least_gap < 1))
      return filler;
    return {};
  }

  // The earliest F or I of the timetable that memory allows, if it is there; W while it is not.
  Choice choose_by_timetable(int rank, double now) {
    Choice next, filler;
    double next_key = kUnknown, blocked_key = kUnknown;
    for (int chunk = 0; chunk < problem_.chunks; ++chunk) {
      const int stage = problem_.stage(rank, chunk);
      for (const Operation operation : {kForward, kInput}) {
        const int micro_batch = done_[operation][index(stage)];
        if (micro_batch >= problem_.micro_batches) continue;
        const std::vector<double>& offset =
            operation == kForward ? policy_.timetable->forward : policy_.timetable->input;
        const double key = offset[index(stage)] + policy_.timetable->period * micro_batch;
        if (operation == kForward &&
            ranks_[index(rank)].live + change_[kForward] > problem_.limit[index(rank)] + kMemorySlack)
          blocked_key = std::min(blocked_key, key);
        else if (key < next_key)
          next_key = key, next = {stage, operation};
      }
      if (filler_available(rank, chunk) &&
          (filler.stage < 0 || done_[kWeight][index(stage)] < done_[kWeight][index(filler.stage)]))
        filler = {stage, kWeight};
    }
    if (filler.stage >= 0 && blocked_key < next_key) return filler;
    const double time = next.stage < 0 ? kUnknown : arrival(next.operation, next.stage);
    if (time <= now) return next;
    if (time < kUnknown) wake(rank, time);
    if (filler.stage < 0 || time - now < policy_.least_gap * problem_.time(kWeight, filler.stage) - 1e-12) return {};
    return filler;
  }

  void start(int rank, const Choice& choice, double now) {
    Rank& state = ranks_[index(rank)];
    const Operation operation = choice.operation;
    const int stage = choice.stage;
    state.list.push_back(make_letter(problem_.chunk_of[index(stage)], operation));
    state.live += change_[operation];
    state.free = now + problem_.time(operation, stage);
    wake(rank, state.free);
    const int micro_batch = done_[operation][index(stage)]++;
    if (operation == kWeight) return;
    if (operation == up_) ++state.ups;
    state.turned |= operation == down_;
    const int edge_in = operation == up_ ? stage : stage + 1;
    if (edge_in > 0 && edge_in < problem_.stages) {
      const int channel = problem_.channel[operation][index(edge_in)];
      if (channel >= 0 && problem_.shared[index(channel)]) ++taken_[index(channel)];
    }
    const int target = operation == up_ ? stage + 1 : stage - 1;
    if (target < 0 || target >= problem_.stages) return;
    const int edge = std::max(stage, target);
    const double arrives = state.free + problem_.hop[operation][index(edge)];
    ready_[operation][index(target)][index(micro_batch)] = arrives;
    const int channel = problem_.channel[operation][index(edge)];
    if (channel >= 0 && problem_.shared[index(channel)]) sent_[index(channel)].push_back(target);
    wake(problem_.rank_of[index(target)], arrives);
  }

  const Problem& problem_;
  const Policy& policy_;
  const bool reversed_;
  const Operation up_, down_;
  double change_[3] = {};                      // memory, in the direction of time
  std::vector<int> done_[3];                   // [operation][stage]
  std::vector<std::vector<double>> ready_[2];  // [operation][stage][micro-batch]
  std::vector<std::vector<int>> sent_;         // [shared channel]: stages that its messages are for, in order
  std::vector<std::size_t> taken_;             // [shared channel]
  std::vector<Rank> ranks_;
  using Event = std::pair<double, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

std::optional<Order> list_schedule(const Problem& problem, const Policy& policy) {
  return policy.trains ? schedule_trains(problem, *policy.trains) : ListScheduler(problem, policy).run();
}

}  // namespace train_gpt::search
