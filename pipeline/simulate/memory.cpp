// Live activations and pending weight gradients of every rank.
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "pipeline/schedule/schedule.h"
#include "pipeline/simulate/parts.h"

namespace train_gpt {
namespace {

// Counts whole virtual stages, so that sums of thirds stay exact.
class LiveCount {
 public:
  LiveCount(double weight_memory, int chunks) : weight_memory_(weight_memory), chunks_(chunks) {}

  void add(Op op) {
    if (op == Op::forward) ++full_;
    if (op == Op::backward || op == Op::backward_input) --full_;
    if (op == Op::backward_input) ++pending_;
    if (op == Op::backward_weight) --pending_;
    const double live = (static_cast<double>(full_) + weight_memory_ * static_cast<double>(pending_)) / chunks_;
    peaks_.activations = std::max(peaks_.activations, live);
    peaks_.pending_weight = std::max(peaks_.pending_weight, static_cast<double>(pending_) / chunks_);
  }

  LivePeaks peaks() const { return peaks_; }

 private:
  double weight_memory_;
  int chunks_;
  std::int64_t full_ = 0;     // between F and I (or B)
  std::int64_t pending_ = 0;  // between I and W
  LivePeaks peaks_;
};

}  // namespace

std::vector<LivePeaks> live_peaks(const Schedule& schedule, const DurationTable& durations, double weight_memory) {
  if (!(weight_memory >= 0.0 && weight_memory <= 1.0)) {
    throw std::invalid_argument("--weight-memory: " + std::to_string(weight_memory) +
                                " is not a fraction; give a number from 0 to 1");
  }
  std::vector<LivePeaks> result;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::vector<Action>& list = schedule.actions(rank);
    LiveCount count(weight_memory, schedule.placement.chunks);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!durations.runs_as_pair(rank, i)) {
        count.add(list[i].op);
        continue;
      }
      Op first = list[i].op, second = list[i + 1].op;
      if (second == Op::forward) std::swap(first, second);
      count.add(first);
      count.add(second);
      ++i;
    }
    result.push_back(count.peaks());
  }
  return result;
}

}  // namespace train_gpt
