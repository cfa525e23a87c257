#include "pipeline/search/trains.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

namespace train_gpt::search {
namespace {

constexpr int kMostAttempts = 4000;  // of one micro-batch
constexpr double kSlack = 1e-9;      // of sums of durations, in actions of mean length

struct Placed {
  double start = 0, end = 0;
  Letter letter = 0;
};

class Trains {
 public:
  Trains(const Problem& problem, const TrainPolicy& policy)
      : problem_(problem), policy_(policy), ranks_(index(problem.ranks)) {
    double sum = 0;
    for (int operation = 0; operation < 3; ++operation)
      for (int stage = 0; stage < problem.stages; ++stage) {
        const double duration = time(static_cast<Operation>(operation), stage);
        sum += duration;
        if (duration > 0 && (shortest_ == 0 || duration < shortest_)) shortest_ = duration;
      }
    mean_ = sum / (3.0 * problem.stages);
    for (auto& ends : last_end_) ends.assign(index(problem.stages), 0.0);
    for (std::vector<Placed>& list : ranks_) list.reserve(3 * index(problem.chunks * problem.micro_batches));
  }

  std::optional<Order> run() {
    if (mean_ <= 0) return std::nullopt;
    double start = 0;
    for (int micro_batch = 0; micro_batch < problem_.micro_batches; ++micro_batch) {
      double shift = 1;
      for (int attempt = 0; attempt < kMostAttempts && shift > 0; ++attempt) {
        shift = enter(start);
        start += shift;
      }
      if (shift > 0) return std::nullopt;
    }
    Order order(ranks_.size());
    for (int rank = 0; rank < problem_.ranks; ++rank)
      for (const Placed& it : with_weights(rank)) order[index(rank)].push_back(it.letter);
    return order;
  }

 private:
  double time(Operation operation, int stage) const { return policy_.slots ? 1 : problem_.time(operation, stage); }

  // Puts one micro-batch on its way from `start` on. 0, or how much later to try again.
  double enter(double start) {
    way_.clear();
    double now = start, waited = 0;
    for (int i = 0; i < 2 * problem_.stages; ++i) {
      const bool down = i < problem_.stages;
      const int stage = down ? i : 2 * problem_.stages - 1 - i;
      const Operation operation = down ? kForward : kInput;
      const double at = gap(stage, operation, now);
      waited += at - now;
      const double too_long = i == 0 ? waited : waited - policy_.slack * mean_;
      if (too_long > kSlack * mean_) return give_up(too_long);
      now = place(stage, operation, at);
      if (i + 1 == 2 * problem_.stages || i + 1 == problem_.stages) continue;  // the way's end, and its turn
      if (!policy_.slots) now += problem_.hop[operation][index(down ? stage + 1 : stage)];
    }
    for (int rank = 0; rank < problem_.ranks; ++rank)
      if (const double shift = until_it_fits(rank); shift > 0) return give_up(shift);
    for (const Step& step : way_) last_end_[step.operation][index(step.stage)] = step.end;
    return 0;
  }

  // The first moment from `ready` on, and after the micro-batch before, at which the rank is free for that long.
  double gap(int stage, Operation operation, double ready) const {
    const std::vector<Placed>& list = ranks_[index(problem_.rank_of[index(stage)])];
    const double duration = time(operation, stage), slack = kSlack * mean_;
    double at = std::max(ready, last_end_[operation][index(stage)]);
    const auto later = [](double time, const Placed& it) { return time < it.start; };
    auto next = std::upper_bound(list.begin(), list.end(), at + slack, later);
    if (next != list.begin()) at = std::max(at, std::prev(next)->end);
    for (; next != list.end() && next->start < at + duration - slack; ++next) at = std::max(at, next->end);
    return at;
  }

  double place(int stage, Operation operation, double at) {
    const int rank = problem_.rank_of[index(stage)];
    std::vector<Placed>& list = ranks_[index(rank)];
    const double end = at + time(operation, stage);
    const auto later = [](double time, const Placed& it) { return time < it.start; };
    const Letter letter = make_letter(problem_.chunk_of[index(stage)], operation);
    list.insert(std::upper_bound(list.begin(), list.end(), at + kSlack * mean_, later), {at, end, letter});
    way_.push_back({stage, operation, at, end});
    return end;
  }

  double give_up(double shift) {
    for (const Step& step : way_) {
      std::vector<Placed>& list = ranks_[index(problem_.rank_of[index(step.stage)])];
      const Letter letter = make_letter(problem_.chunk_of[index(step.stage)], step.operation);
      for (auto it = list.end(); it != list.begin();) {
        --it;
        if (it->letter != letter || it->start != step.start) continue;
        list.erase(it);
        break;
      }
    }
    return shift;
  }

  // The rank's list with every W in the first gap after its I that is long enough, or at the end.
  const std::vector<Placed>& with_weights(int rank) {
    const std::vector<Placed>& fixed = ranks_[index(rank)];
    full_.clear();
    std::size_t oldest = 0;  // in waiting_
    waiting_.clear();
    double now = 0;
    const auto fill = [&](double until) {
      for (; oldest < waiting_.size(); ++oldest) {
        const Letter input = waiting_[oldest];
        const double duration = time(kWeight, problem_.stage(rank, chunk_of(input)));
        if (now + duration > until + kSlack * mean_) return;
        full_.push_back({now, now + duration, make_letter(chunk_of(input), kWeight)});
        now += duration;
      }
    };
    for (const Placed& it : fixed) {
      fill(it.start);
      full_.push_back(it);
      now = it.end;
      if (operation_of(it.letter) == kInput) waiting_.push_back(it.letter);
    }
    fill(std::numeric_limits<double>::infinity());
    return full_;
  }

  // 0 if the rank's memory never exceeds its limit; else the time until it next gets some back.
  double until_it_fits(int rank) {
    const std::vector<Placed>& list = with_weights(rank);
    double live = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      live += problem_.memory_change(operation_of(list[i].letter));
      if (live <= problem_.limit[index(rank)] + kMemorySlack) continue;
      for (std::size_t j = i + 1; j < list.size(); ++j)
        if (operation_of(list[j].letter) != kForward && list[j].end > list[i].start + kSlack * mean_)
          return std::max(list[j].end - list[i].start, shortest_ / 4);
      return shortest_;
    }
    return 0;
  }

  struct Step {
    int stage = 0;
    Operation operation = kForward;
    double start = 0, end = 0;
  };

  const Problem& problem_;
  const TrainPolicy& policy_;
  double mean_ = 0, shortest_ = 0;
  std::vector<std::vector<Placed>> ranks_;       // [rank], by start
  std::array<std::vector<double>, 3> last_end_;  // [operation][stage]: of the micro-batch before
  std::vector<Placed> full_;                     // see with_weights()
  std::vector<Letter> waiting_;
  std::vector<Step> way_;  // of the micro-batch that enters
};

}  // namespace

std::optional<Order> schedule_trains(const Problem& problem, const TrainPolicy& policy) {
  return Trains(problem, policy).run();
}

}  // namespace train_gpt::search
