#include "pipeline/search/improve.h"

#include <algorithm>
#include <cmath>

#include "data/splitmix64.h"

namespace train_gpt::search {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return scattered(state_ += kGoldenRatio); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

// Consecutive actions of one rank on the critical path, without idle time between them.
struct Block {
  int rank = 0;
  std::size_t first = 0, last = 0;
};

// One letter of a rank's list taken out and put in elsewhere.
struct Move {
  int rank = 0;
  std::size_t from = 0, to = 0;
};

void apply(RankOrder& list, std::size_t from, std::size_t to) {
  const auto begin = list.begin();
  using Step = RankOrder::difference_type;
  const Step f = static_cast<Step>(from), t = static_cast<Step>(to);
  if (from < to)
    std::rotate(begin + f, begin + f + 1, begin + t + 1);
  else
    std::rotate(begin + t, begin + f, begin + f + 1);
}

class Annealing {
 public:
  Annealing(const Problem& problem, Order order, const ImproveOptions& options, Work& work)
      : problem_(problem),
        options_(options),
        work_(work),
        evaluator_(problem),
        random_(options.seed),
        order_(std::move(order)) {}

  Improvement run() {
    evaluator_.evaluate(order_);
    best_ = {order_, evaluator_.score(), 1};
    double current = energy();
    std::size_t actions = 0;
    for (const RankOrder& list : order_) actions += list.size();
    const std::int64_t rounds = options_.budget / static_cast<std::int64_t>(actions);
    const double hot =
        options_.temperature * *std::max_element(problem_.duration[kWeight].begin(), problem_.duration[kWeight].end());
    bool stale = true;
    for (std::int64_t round = 0; round < rounds && !best_.score.reaches(options_.bound) && !work_.stopped(); ++round) {
      work_.add(static_cast<std::int64_t>(actions));
      const double left = 1 - static_cast<double>(round) / static_cast<double>(rounds);
      if (stale) find_blocks();
      stale = false;
      // Some improvements need two ranks, or two places of one, to change at once.
      Move moves[2] = {propose(), {}};
      if (moves[0].from == moves[0].to) continue;
      if (random_.below(4) == 0) moves[1] = propose();
      for (const Move& move : moves) apply(order_[index(move.rank)], move.from, move.to);
      ++best_.evaluations;
      const bool valid = evaluator_.evaluate(order_);
      const double energy_after = valid ? energy() : 0;
      if (!valid || energy_after > current - hot * left * left * std::log(1 - random_.uniform())) {
        for (const Move& move : {moves[1], moves[0]}) apply(order_[index(move.rank)], move.to, move.from);
        continue;
      }
      current = energy_after;
      stale = true;
      if (evaluator_.score().better_than(best_.score)) best_.order = order_, best_.score = evaluator_.score();
    }
    return best_;
  }

 private:
  // The objective, and a little of every rank's share in it, so that progress shows before the last rank has made it.
  double energy() const {
    double sum = 0;
    for (int rank = 0; rank < problem_.ranks; ++rank) sum += evaluator_.finish(rank);
    return evaluator_.score().objective + 0.2 * sum / problem_.ranks +
           (options_.polish ? 0.1 * evaluator_.score().other : 0);
  }

  // Walks back from the end that makes the objective, while the evaluator still describes order_.
  void find_blocks() {
    blocks_.clear();
    int rank = 0;
    // Any rank whose end makes the objective; a different one each time if there are several.
    const std::size_t offset = random_.below(index(problem_.ranks));
    double worst = -1;
    for (int i = 0; i < problem_.ranks; ++i) {
      const int candidate = static_cast<int>((index(i) + offset) % index(problem_.ranks));
      if (evaluator_.finish(candidate) > worst + 1e-9) worst = evaluator_.finish(candidate), rank = candidate;
    }
    std::size_t position = order_[index(rank)].size() - 1;
    while (true) {
      Block block{rank, position, position};
      const std::vector<double>& starts = evaluator_.starts(rank);
      while (block.first > 0 && starts[block.first] <= end(rank, block.first - 1) + 1e-9) --block.first;
      blocks_.push_back(block);
      if (block.first == 0 || !source(rank, block.first, rank, position)) break;
    }
  }

  double end(int rank, std::size_t position) const {
    const Letter letter = order_[index(rank)][position];
    return evaluator_.start(rank, position) +
           problem_.time(operation_of(letter), problem_.stage(rank, chunk_of(letter)));
  }

  // The action on another rank that the given one waited for.
  bool source(int rank, std::size_t position, int& source_rank, std::size_t& source_position) const {
    const RankOrder& list = order_[index(rank)];
    const Letter letter = list[position];
    const Operation operation = operation_of(letter);
    if (operation == kWeight) return false;
    const int stage = problem_.stage(rank, chunk_of(letter)) + (operation == kForward ? -1 : 1);
    if (stage < 0 || stage >= problem_.stages) return false;
    const auto count =
        std::count(list.begin(), list.begin() + static_cast<RankOrder::difference_type>(position), letter);
    source_rank = problem_.rank_of[index(stage)];
    const Letter wanted = make_letter(problem_.chunk_of[index(stage)], operation);
    const RankOrder& other = order_[index(source_rank)];
    std::ptrdiff_t seen = -1;
    for (source_position = 0; source_position < other.size(); ++source_position)
      if (other[source_position] == wanted && ++seen == count) return true;
    return false;
  }

  Move propose() {
    const Block& block = blocks_[random_.below(blocks_.size())];
    const RankOrder& list = order_[index(block.rank)];
    const std::size_t length = block.last - block.first + 1;
    switch (random_.below(5)) {
      case 0:  // what the next block waits for goes earlier
        if (length == 1) return {};
        return {block.rank, block.last, block.last - 1 - random_.below(std::min<std::size_t>(length - 1, 6))};
      case 1:  // what waited goes later, others start at once
        if (length == 1) return {};
        return {block.rank, block.first, block.first + 1 + random_.below(std::min<std::size_t>(length - 1, 6))};
      case 2: {  // something inside moves a little
        const std::size_t from = block.first + random_.below(length);
        const std::size_t reach = 1 + random_.below(4);
        const std::size_t to = random_.below(2) ? from + reach : from - std::min(from, reach);
        return {block.rank, from, std::min(to, list.size() - 1)};
      }
      case 3: {  // a W leaves the block: to its end, or beyond
        const std::size_t from = weight_in(list, block.first, block.last);
        if (from == list.size()) return {};
        const std::size_t beyond = random_.below(2) ? 0 : random_.below(list.size() - block.last);
        return {block.rank, from, block.last + beyond};
      }
      default: {  // a W leaves the block for an earlier gap
        const std::size_t from = weight_in(list, block.first, block.last);
        if (from == list.size() || block.first == 0) return {};
        return {block.rank, from, random_.below(2) ? block.first : random_.below(block.first + 1)};
      }
    }
  }

  std::size_t weight_in(const RankOrder& list, std::size_t first, std::size_t last) {
    const std::size_t start = first + random_.below(last - first + 1);
    for (std::size_t position = start; position <= last; ++position)
      if (operation_of(list[position]) == kWeight) return position;
    for (std::size_t position = first; position < start; ++position)
      if (operation_of(list[position]) == kWeight) return position;
    return list.size();
  }

  const Problem& problem_;
  const ImproveOptions& options_;
  Work& work_;
  Evaluator evaluator_;
  Random random_;
  Order order_;
  Improvement best_;
  std::vector<Block> blocks_;
};

}  // namespace

Improvement improve(const Problem& problem, const Order& order, const ImproveOptions& options, Work& work) {
  return Annealing(problem, order, options, work).run();
}

}  // namespace train_gpt::search
