#include "pipeline/search/extend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace train_gpt::search {
namespace {

// A stretch [first, first + 3v * micro_batches) of every rank's list.
struct Period {
  int micro_batches = 0;
  std::vector<std::size_t> first;  // [rank]
};

// Where the stretches of `period` micro-batches begin in which every letter occurs that often.
std::vector<std::size_t> balanced(const RankOrder& list, int chunks, int period) {
  const std::size_t letters = 3 * index(chunks), length = letters * index(period);
  std::vector<std::size_t> found;
  if (list.size() < length) return found;
  std::vector<int> counts(letters, 0);
  std::size_t right = 0;  // letters that occur just so often
  const auto add = [&](Letter letter, int change) {
    int& count = counts[letter & ~kPaired];
    right -= count == period;
    count += change;
    right += count == period;
  };
  for (std::size_t i = 0; i < list.size(); ++i) {
    add(list[i], 1);
    if (i >= length) add(list[i - length], -1);
    if (i + 1 < length || right < letters) continue;
    const std::size_t first = i + 1 - length;
    const auto inside_pair = [&](std::size_t at) {
      return (at > 0 && at < list.size() && is_paired(list[at - 1])) ||
             (at > 1 && at < list.size() && is_paired(list[at - 2]));
    };
    if (!inside_pair(first) && !inside_pair(i + 1)) found.push_back(first);
  }
  return found;
}

// Stretches that start about when `time` comes.
std::optional<Period> period_at(const Problem& problem, const Evaluator& evaluator,
                                const std::vector<std::vector<std::size_t>>& starts, int period, double time) {
  Period result{period, {}};
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const auto& choices = starts[index(rank)];
    if (choices.empty()) return std::nullopt;
    const auto later = [&](double wanted, std::size_t first) { return wanted < evaluator.start(rank, first); };
    auto at = std::upper_bound(choices.begin(), choices.end(), time, later);
    if (at != choices.begin()) --at;
    result.first.push_back(*at);
  }
  return result;
}

Order repeated(const Problem& problem, const Order& order, const Period& period, int times) {
  Order result;
  const std::size_t length = 3 * index(problem.chunks) * index(period.micro_batches);
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const RankOrder& list = order[rank];
    const auto first = list.begin() + static_cast<std::ptrdiff_t>(period.first[rank]);
    const auto last = first + static_cast<std::ptrdiff_t>(length);
    RankOrder& longer = result.emplace_back();
    longer.reserve(list.size() + length * index(times));
    longer.assign(list.begin(), first);
    for (int i = 0; i <= times; ++i) longer.insert(longer.end(), first, last);
    longer.insert(longer.end(), last, list.end());
  }
  return result;
}

Problem with_micro_batches(const Problem& problem, int micro_batches) {
  Problem result = problem;
  result.micro_batches = micro_batches;
  return result;
}

// The objective of the order with the period repeated so often; nothing if the ranks then block each other.
double objective(const Problem& few, const Order& order, const Period& period, int times) {
  const Problem more = with_micro_batches(few, few.micro_batches + times * period.micro_batches);
  Evaluator evaluator(more, false);
  if (!evaluator.evaluate(repeated(few, order, period, times))) return std::numeric_limits<double>::infinity();
  return evaluator.score().objective;
}

}  // namespace

std::optional<Order> extend(const Problem& few, const Order& order, const Problem& many) {
  Evaluator evaluator(few);
  if (!evaluator.evaluate(order)) return std::nullopt;
  const int missing = many.micro_batches - few.micro_batches;
  const double end = evaluator.score().objective;
  std::optional<Period> best;
  double least = std::numeric_limits<double>::infinity();
  // Where few micro-batches are missing there is little to gain.
  const bool far = missing > few.micro_batches / 2;
  const std::set<int> periods = far ? std::set<int>{1, 2, 3, 4, few.ranks} : std::set<int>{1, 2};
  const std::vector<double> parts = far ? std::vector<double>{0.4, 0.6} : std::vector<double>{0.5};
  for (const int period : periods) {
    if (3 * period > few.micro_batches) continue;
    std::vector<std::vector<std::size_t>> starts;
    for (const RankOrder& list : order) starts.push_back(balanced(list, few.chunks, period));
    std::set<std::vector<std::size_t>> seen;
    for (const double part : parts) {
      const std::optional<Period> candidate = period_at(few, evaluator, starts, period, part * end);
      if (!candidate || !seen.insert(candidate->first).second) continue;
      // The warm-up of the repetition itself is over after a few of them: what counts is the slope.
      const int times = std::max(1, few.micro_batches / (2 * period));
      const double once = objective(few, order, *candidate, times);
      const double twice = objective(few, order, *candidate, 2 * times);
      const double predicted = once + (twice - once) / times * (static_cast<double>(missing) / period - times);
      if (predicted < least) least = predicted, best = candidate;
    }
  }
  if (!best) return std::nullopt;
  const int times = (missing + best->micro_batches - 1) / best->micro_batches;
  Order longer = repeated(few, order, *best, times);
  for (int surplus = few.micro_batches + times * best->micro_batches; surplus > many.micro_batches; --surplus)
    longer = without_last(with_micro_batches(many, surplus), std::move(longer));
  return longer;
}

}  // namespace train_gpt::search
