#include "pipeline/search/blocks.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace train_gpt::search {
namespace {

// Slots from one stage to the next, on the four legs of a micro-batch's way (down the V with F, up with F, down with I,
// up with I), and at the three turns between them. Two of the period's slots are left for W.
struct Block {
  int period = 6;
  int leg[4] = {1, 1, 1, 1};
  int turn[3] = {1, 1, 1};
};

Timetable timetable_of(const Block& block, int ranks) {
  Timetable table;
  table.period = block.period;
  table.forward.resize(index(2 * ranks));
  table.input.resize(index(2 * ranks));
  int slot = 0;
  for (int leg = 0; leg < 4; ++leg) {
    for (int step = 0; step < ranks; ++step) {
      const int along = leg % 2 * ranks + step;  // place on the way there or back
      if (leg < 2)
        table.forward[index(along)] = slot;
      else
        table.input[index(2 * ranks - 1 - along)] = slot;
      if (step + 1 < ranks) slot += block.leg[leg];
    }
    if (leg < 3) slot += block.turn[leg];
  }
  return table;
}

// Largest memory of a rank in the steady state; negative if two actions of a rank share a slot.
double memory_of(const Timetable& table, int ranks) {
  double most = 0;
  const int period = static_cast<int>(table.period);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t a = index(rank), b = index(2 * ranks - 1 - rank);
    const double times[4] = {table.forward[a], table.forward[b], table.input[b], table.input[a]};
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < i; ++j)
        if (static_cast<int>(times[i]) % period == static_cast<int>(times[j]) % period) return -1;
    const double alive = (times[3] - times[0] + 2) + (times[2] - times[1] + 2);  // I itself, and W right after it
    most = std::max(most, alive / period / 2);
  }
  return most;
}

}  // namespace

std::vector<Timetable> building_blocks(const Problem& problem, std::size_t most) {
  if (problem.placement.kind != Placement::Kind::v_shape || problem.ranks < 2) return {};
  const double limit = *std::min_element(problem.limit.begin(), problem.limit.end());
  std::vector<std::tuple<double, double, Timetable>> found;  // distance from the limit, latency, pattern
  Block block;
  const int sizes[8] = {3, 4, 4, 4, 4, 3, 6, 3};  // choices for period (6..8), legs (1..4), turns (1..3, 1..6, 1..3)
  int total = 1;
  for (const int size : sizes) total *= size;
  for (int code = 0; code < total; ++code) {
    int rest = code;
    int digits[8];
    for (int i = 0; i < 8; ++i) digits[i] = rest % sizes[i], rest /= sizes[i];
    block.period = 6 + digits[0];
    for (int i = 0; i < 4; ++i) block.leg[i] = 1 + digits[1 + i];
    for (int i = 0; i < 3; ++i) block.turn[i] = 1 + digits[5 + i];
    Timetable table = timetable_of(block, problem.ranks);
    const double memory = memory_of(table, problem.ranks);
    // Real costs stretch the period, and with it what fits: patterns somewhat above the limit deserve a try.
    if (memory < 0 || memory > 1.15 * limit + 0.5) continue;
    const double latency = table.input[0];
    found.emplace_back(std::abs(memory - limit), latency, std::move(table));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& left, const auto& right) {
    return std::tie(std::get<0>(left), std::get<1>(left)) < std::tie(std::get<0>(right), std::get<1>(right));
  });
  std::vector<Timetable> tables;
  for (auto& entry : found) {
    if (tables.size() == most) break;
    tables.push_back(std::move(std::get<2>(entry)));
  }
  return tables;
}

}  // namespace train_gpt::search
