#include "pipeline/search/bound.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

namespace train_gpt::search {
namespace {

constexpr double kSlack =
    1e-9;  // relative, in favour of feasibility: a bound may be too low by rounding, never too high

// The pieces a rank can put into its head (F) or its tail (W).
struct Pieces {
  int count = 0;                // most that memory lets it have there
  double most = 0;              // longest time they can fill
  std::optional<double> piece;  // if all are equally long
};

Pieces pieces_of(const Problem& problem, int rank, Operation operation, double most_count) {
  std::vector<double> times;
  for (int chunk = 0; chunk < problem.chunks; ++chunk)
    times.push_back(problem.time(operation, problem.stage(rank, chunk)));
  std::sort(times.begin(), times.end(), std::greater<>());
  Pieces pieces;
  pieces.count = static_cast<int>(std::min(most_count, static_cast<double>(problem.chunks) * problem.micro_batches));
  int left = pieces.count;
  for (const double time : times) {
    const int taken = std::min(left, problem.micro_batches);
    pieces.most += taken * time;
    left -= taken;
  }
  if (times.front() == times.back()) pieces.piece = times.front();
  return pieces;
}

struct RankLimits {
  Pieces head, tail;
  double busy = 0;
  double offset = 0;  // the rank's window is [start, D + offset]
  double start = 0;
};

// The earliest moment >= `earliest` at which a run of whole pieces, begun at 0, may end if up to `idle` may be wasted.
// Negative: no such moment.
double next_end(const Pieces& pieces, double idle, double earliest, int* count) {
  if (!pieces.piece || *pieces.piece <= 0) {
    if (count != nullptr) *count = pieces.count;
    return earliest <= pieces.most + idle ? earliest : -1;
  }
  const double piece = *pieces.piece;
  const double tolerance = kSlack * (earliest + piece);
  int whole = static_cast<int>(std::min<double>(pieces.count, std::floor((earliest + tolerance) / piece)));
  double end = earliest;
  if (earliest > whole * piece + idle + tolerance) {
    if (++whole > pieces.count) return -1;
    end = whole * piece;
  }
  if (count != nullptr) *count = whole;
  return end;
}

class Bound {
 public:
  explicit Bound(const Problem& problem) : problem_(problem) {
    const bool span = problem.objective == Objective::span;
    for (int rank = 0; rank < problem.ranks; ++rank) {
      RankLimits limits;
      limits.busy = problem.busy(rank);
      limits.start = problem.first_start[index(rank)];
      limits.offset = span ? limits.start : 0;
      const double room = problem.limit[index(rank)] * problem.chunks + kMemorySlack;
      limits.head = pieces_of(problem, rank, kForward, std::floor(room));
      const double kept =
          problem.weight_memory > 0 ? std::floor((room - 1) / problem.weight_memory + kMemorySlack) + 1 : 1e18;
      limits.tail = pieces_of(problem, rank, kWeight, kept);
      ranks_.push_back(limits);
    }
  }

  double operator()() const {
    double low = 0;
    for (int rank = 0; rank < problem_.ranks; ++rank) {
      const RankLimits& limits = ranks_[index(rank)];
      low = std::max(low, limits.start - limits.offset + limits.busy + least_idle_head(rank) + least_idle_tail(rank));
      low = std::max(low, area(rank) + limits.start - limits.offset);
    }
    if (possible(low)) return low;
    double high = low;
    for (double step = low * 1e-3; !possible(high); step *= 2) {
      high = low + step;
      if (step > 1e6 * low) return low;  // the chains never close: memory alone decides, and the terms above hold
    }
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (possible(middle) ? high : low) = middle;
    }
    return low;
  }

  // [rank]: from the start of its first action to the end of its last one.
  std::vector<double> least_windows() const {
    std::vector<double> windows;
    for (int rank = 0; rank < problem_.ranks; ++rank)
      windows.push_back(ranks_[index(rank)].busy + least_idle_head(rank));
    return windows;
  }

  std::vector<int> warmup(double target) const {
    std::vector<int> counts(index(problem_.ranks));
    for (const RankLimits& limits : ranks_)
      if (!limits.head.piece) return {};
    if (!heads_possible(target, &counts)) return {};
    return counts;
  }

 private:
  // Start of the first I of the rank's highest stage if nobody dawdles.
  double earliest_turn(int rank) const {
    double time = 0;
    for (int stage = 0; stage < problem_.stages; ++stage)
      time += problem_.hop[kForward][index(stage)] + problem_.shortest(kForward, stage);
    for (int stage = problem_.stages - 1; stage > problem_.stage(rank, problem_.chunks - 1); --stage)
      time += problem_.shortest(kInput, stage) + problem_.hop[kInput][index(stage)];
    return time;
  }
  double least_idle_head(int rank) const {
    const RankLimits& limits = ranks_[index(rank)];
    return std::max(0.0, earliest_turn(rank) - limits.start - limits.head.most);
  }
  // What lies between the end of the rank's last I and the end of its window.
  double least_tail(int rank) const {
    int stage = problem_.stage(rank, 0);
    const double own = ranks_[index(rank)].offset;
    double time = 0, longest = problem_.shortest(kWeight, stage);
    while (--stage >= 0) {
      time += problem_.hop[kInput][index(stage + 1)] + problem_.shortest(kInput, stage);
      const double window_shift = own - ranks_[index(problem_.rank_of[index(stage)])].offset;
      longest = std::max(longest, time + problem_.shortest(kWeight, stage) + window_shift);
    }
    return longest;
  }
  double least_idle_tail(int rank) const { return std::max(0.0, least_tail(rank) - ranks_[index(rank)].tail.most); }

  double idle_allowed(int rank, double target) const {
    const RankLimits& limits = ranks_[index(rank)];
    return target + limits.offset - limits.start - limits.busy;
  }

  // The last p stages lie on p different ranks: there each rank runs its first I.
  bool heads_possible(double target, std::vector<int>* counts) const {
    double earliest = 0;
    for (int stage = 0; stage < problem_.stages; ++stage)
      earliest += problem_.hop[kForward][index(stage)] + problem_.shortest(kForward, stage);
    for (int stage = problem_.stages - 1; stage >= problem_.stages - problem_.ranks; --stage) {
      const int rank = problem_.rank_of[index(stage)];
      const RankLimits& limits = ranks_[index(rank)];
      const double idle = idle_allowed(rank, target) - least_idle_tail(rank);
      int* count = counts == nullptr ? nullptr : &(*counts)[index(rank)];
      const double turn = next_end(limits.head, idle, earliest - limits.start, count);
      if (turn < 0) return false;
      earliest = limits.start + turn + problem_.shortest(kInput, stage) + problem_.hop[kInput][index(stage)];
    }
    return true;
  }

  // The first p stages likewise: there each rank runs its last I. Times run backwards from `target`.
  bool tails_possible(double target) const {
    double earliest = 0;
    for (int stage = 0; stage < problem_.ranks; ++stage) {
      const int rank = problem_.rank_of[index(stage)];
      const RankLimits& limits = ranks_[index(rank)];
      const double idle = idle_allowed(rank, target) - least_idle_head(rank);
      const double own_weight = problem_.shortest(kWeight, stage);
      const double turn = next_end(limits.tail, idle, std::max(earliest + limits.offset, own_weight), nullptr);
      if (turn < 0) return false;
      earliest = turn - limits.offset + problem_.shortest(kInput, stage) +
                 (stage + 1 < problem_.stages ? problem_.hop[kForward][index(stage + 1)] : 0);
    }
    return true;
  }

  bool possible(double target) const { return heads_possible(target, nullptr) && tails_possible(target); }

  // Most that can be alive under the limit, given that a activations and b weight-gradient remainders make it up.
  double usable_memory(int rank) const {
    const double room = problem_.limit[index(rank)] * problem_.chunks + kMemorySlack;
    const double fraction = problem_.weight_memory;
    if (fraction <= 0) return std::floor(room) / problem_.chunks;
    double most = 0;
    for (double whole = std::floor(room); whole >= 0; --whole)
      most = std::max(most, whole + std::floor((room - whole) / fraction) * fraction);
    return most / problem_.chunks;
  }

  // Length of the rank's window that its activations need: each stays for at least its round trip.
  double area(int rank) const {
    if (!std::isfinite(problem_.limit[index(rank)])) return 0;
    const double share = 1.0 / problem_.chunks, fraction = problem_.weight_memory;
    double needed = 0, shortest_forward = 1e300, release_rate = 0;
    for (int chunk = 0; chunk < problem_.chunks; ++chunk) {
      const int own = problem_.stage(rank, chunk);
      double round_trip = problem_.shortest(kForward, own) + problem_.shortest(kInput, own);
      for (int stage = own + 1; stage < problem_.stages; ++stage)
        round_trip += problem_.shortest(kForward, stage) + problem_.shortest(kInput, stage) +
                      problem_.hop[kForward][index(stage)] + problem_.hop[kInput][index(stage)];
      const double weight = problem_.shortest(kWeight, own), input = problem_.shortest(kInput, own);
      needed += problem_.micro_batches * share * (round_trip + fraction * weight);
      shortest_forward = std::min(shortest_forward, problem_.shortest(kForward, own));
      release_rate = std::max({release_rate, fraction > 0 ? share * fraction / std::max(weight, 1e-300) : 0.0,
                               fraction < 1 ? share * (1 - fraction) / std::max(input, 1e-300) : 0.0});
    }
    const double memory = usable_memory(rank);
    const double slots = std::min(std::floor(memory * problem_.chunks + kMemorySlack),
                                  static_cast<double>(problem_.chunks) * problem_.micro_batches);
    const double filling = share * shortest_forward * slots * (slots - 1) / 2;
    const double above_one = std::max(0.0, std::min(memory, static_cast<double>(problem_.micro_batches)) - share);
    const double draining = above_one * above_one / (2 * release_rate);
    // Counting both ramps in full takes a window in which they do not overlap.
    const double window = std::max(needed / memory, ranks_[index(rank)].busy);
    const bool apart = window >= slots * shortest_forward + memory / release_rate;
    return (needed + (apart ? filling + draining : 0)) / memory;
  }

  const Problem& problem_;
  std::vector<RankLimits> ranks_;
};

}  // namespace

double lower_bound(const Problem& problem) { return Bound(problem)() * (1 - kSlack); }

double joined_bound(const Problem& first, const Problem& second) {
  const std::vector<double> a = Bound(first).least_windows(), b = Bound(second).least_windows();
  double least = 0;
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    const double start = first.objective == Objective::makespan ? first.first_start[rank] : 0;
    least = std::max(least, start + a[rank] + b[rank]);
  }
  return least * (1 - kSlack);
}

std::vector<int> warmup_counts(const Problem& problem, double target) { return Bound(problem).warmup(target); }

}  // namespace train_gpt::search
